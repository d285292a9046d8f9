//! Beam search: the code of a row, by the products of the row with all entries.
//!
//! Encoding minimises |z - cell - sum of words|^2 over all codes. Up to a constant it is
//!
//! ```text
//! |cell|^2 - 2 z.cell + sum_m ( |w_m|^2 - 2 z.w_m + 2 cell.w_m + 2 sum_{p < m} w_p.w_m )
//! ```
//!
//! so that everything is a sum of table entries. The beam starts with the best cells. Each codebook extends every
//! candidate by 256 words and the best are kept. (Changing one word at a time afterwards, while that helps, was
//! measured: recall stays the same within chance.)
//!
//! **Selection.** The best of all continuations are found without branches. The last bits of a score are replaced by
//! the number of the continuation. Sixteen such keys fill a vector, so a sorting network of minima and maxima sorts all
//! lanes at once. The vectors of a few words are sorted at a time and merged with the best so far, and the lanes are
//! merged last ([`smallest`]). The bits cost little precision, because scores are taken relative to the best candidate
//! before.

use super::codebooks::{Codebooks, Tables, WORDS};
use crate::arch::Isa;
use crate::arch::sixteen::{F32x16, Floats, ITEM, Work16};
use std::ops::Range;

/// Largest width of the beam.
pub(crate) const MAX_BEAM: usize = 32;
/// The longest code: a cell and the words of 64 bytes.
pub(super) const MAX_LENGTH: usize = 64;
pub(super) type Code = [u8; MAX_LENGTH];
/// Vectors of the words of a codebook.
pub(super) const VECTORS: usize = WORDS / 16;
/// Vectors of 16 bytes in a cache line.
const LINE: usize = 4;
/// A number for each word of a codebook.
pub(super) type Words = [Floats; VECTORS];

/// Working memory of the search for one thread.
pub(crate) struct Beam {
    width: usize,
    /// Cells and words of the candidates; two generations.
    codes: [[Code; MAX_BEAM]; 2],
    /// The scores of all continuations of the candidates.
    grown: Vec<Words>,
    /// The scores of the cells, filled up to whole vectors.
    cells: Vec<f32>,
}

impl Beam {
    /// A beam of `width` candidates for these codebooks.
    pub(crate) fn new(books: &Codebooks, width: usize) -> Self {
        assert!(books.books < MAX_LENGTH);
        Self {
            width: width.clamp(1, MAX_BEAM),
            codes: [[[0; MAX_LENGTH]; MAX_BEAM]; 2],
            grown: vec![[[0.0; 16]; VECTORS]; MAX_BEAM],
            cells: vec![f32::MAX; books.cell_count.next_multiple_of(16)],
        }
    }

    /// Writes the codes of rows: for each the cell and a word of each codebook. `products` are those of
    /// [`Products::of`](super::codebooks::Products::of).
    pub(crate) fn encode(
        &mut self,
        isa: Isa,
        books: &Codebooks,
        tables: &Tables,
        products: &[f32],
        codes: &mut [u8],
    ) {
        // The number of vectors is a power of two, for the sorting network. Each takes time to compile: four will do.
        match self.width {
            1 => isa.sixteens(Rows::<1> { beam: self, books, tables, products, codes }),
            2..=4 => isa.sixteens(Rows::<4> { beam: self, books, tables, products, codes }),
            5..=8 => isa.sixteens(Rows::<8> { beam: self, books, tables, products, codes }),
            _ => isa.sixteens(Rows::<32> { beam: self, books, tables, products, codes }),
        }
    }
}

/// Rows to encode. `R` is at least the width of the beam.
struct Rows<'a, const R: usize> {
    beam: &'a mut Beam,
    books: &'a Codebooks,
    tables: &'a Tables,
    products: &'a [f32],
    codes: &'a mut [u8],
}

impl<const R: usize> Work16 for Rows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) {
        let Rows { beam, books, tables, products, codes } = self;
        let rows = products.chunks_exact(books.entries());
        for (code, products) in codes.chunks_exact_mut(books.books + 1).zip(rows) {
            let row = Row::new(books, tables, products);
            row.best::<S, R>(s, beam, code);
        }
    }
}

/// One row and the tables that its code is found by.
struct Row<'a> {
    books: &'a Codebooks,
    tables: &'a Tables,
    /// Products of the row with the cells, and with the words of each codebook.
    to_cells: &'a [f32],
    to_words: &'a [Words],
    /// Squared lengths of the words.
    squares: &'a [Words],
}

/// Numbers as vectors, for each codebook.
#[inline(always)]
fn by_book(numbers: &[f32]) -> &[Words] {
    numbers.as_chunks::<16>().0.as_chunks::<VECTORS>().0
}

/// Whole numbers for the words of a codebook.
pub(super) type Sums<S> = [<S as F32x16>::I; VECTORS];

/// Adds all `pairs` to `sums`. With `AHEAD`, the block behind each of the pairs will be needed next.
#[inline(always)]
pub(super) fn add_pairs<'a, S: F32x16, const AHEAD: bool>(
    s: S,
    pairs: impl Iterator<Item = &'a [i8; WORDS]> + Clone,
    sums: &mut Sums<S>,
) {
    if S::MANY_REGISTERS {
        add_some::<S, VECTORS, AHEAD>(s, pairs, 0, sums);
    } else {
        const HALF: usize = VECTORS / 2;
        add_some::<S, HALF, AHEAD>(s, pairs.clone(), 0, sums);
        add_some::<S, HALF, AHEAD>(s, pairs, HALF, sums);
    }
}

/// Adds to `N` of these sums, from vector `from` on. They are in registers.
#[inline(always)]
fn add_some<'a, S: F32x16, const N: usize, const AHEAD: bool>(
    s: S,
    pairs: impl Iterator<Item = &'a [i8; WORDS]>,
    from: usize,
    sums: &mut Sums<S>,
) {
    let mut whole = [s.whole_zeros(); N];
    whole.copy_from_slice(&sums[from..from + N]);
    for pair in pairs {
        let pair = pair.as_chunks::<16>().0;
        for i in 0..N {
            whole[i] = s.add_bytes(whole[i], &pair[from + i]);
            if AHEAD && i % LINE == 0 {
                s.prefetch(&pair[from + i], WORDS);
            }
        }
    }
    sums[from..from + N].copy_from_slice(&whole);
}

/// In how many of these places, from the first one on, all codes are equal.
#[inline(always)]
fn agreement(codes: &[Code], places: Range<usize>) -> usize {
    let mut differences = [0u8; MAX_LENGTH];
    for code in &codes[1..] {
        for ((to, a), b) in differences.iter_mut().zip(code).zip(&codes[0]) {
            *to |= a ^ b;
        }
    }
    differences[places].iter().take_while(|difference| **difference == 0).count()
}

impl<'a> Row<'a> {
    #[inline(always)]
    fn new(books: &'a Codebooks, tables: &'a Tables, products: &'a [f32]) -> Self {
        let (to_cells, to_words) = products.split_at(books.cell_count);
        let squares = by_book(&tables.squares[books.cell_count..]);
        Self { books, tables, to_cells, to_words: by_book(to_words), squares }
    }

    /// Writes the score of each cell alone.
    #[inline(always)]
    fn score_cells(&self, scores: &mut [f32]) {
        for ((to, product), square) in
            scores.iter_mut().zip(self.to_cells).zip(&self.tables.squares)
        {
            *to = square - 2.0 * product;
        }
    }

    /// Writes the best code that the beam finds.
    #[inline(always)]
    fn best<S: F32x16, const R: usize>(&self, s: S, beam: &mut Beam, code: &mut [u8]) {
        let Beam { width, codes: generations, cells, grown } = beam;
        self.score_cells(cells);
        let first = smallest::<S, R>(s, cells.as_chunks().0);
        let mut live = (*width).min(self.books.cell_count);
        let mut scores = [0f32; R];
        for i in 0..live.min(R) {
            let cell = item(first[i]).min(self.books.cell_count - 1);
            generations[0][i][0] = cell as u8;
            scores[i] = cells[cell];
        }
        let mut generation = 0;
        for segment in &self.books.segments {
            let own = &segment.books;
            for book in own.clone() {
                let mut alone = [s.splat(0.0); VECTORS];
                let products = self.to_words[book].iter().zip(&self.squares[book]);
                for (alone, (product, square)) in alone.iter_mut().zip(products) {
                    let product = s.load(product);
                    *alone = s.sub(s.load(square), s.add(product, product));
                }
                let [even, odd] = generations;
                let (from, to) = if generation == 0 { (even, odd) } else { (odd, even) };
                let next = Book { row: self, book, own };
                live =
                    extend(s, &next, &alone, &from[..live.min(R)], to, &mut scores, *width, grown);
                generation = 1 - generation;
            }
        }
        code.copy_from_slice(&generations[generation][0][..code.len()]);
    }
}

/// What the words of a codebook add to the score of a code, beside what they add to every code.
pub(super) trait Continuations {
    /// The places of the words that the codebook has products with. Its own place follows.
    fn places(&self) -> Range<usize>;
    /// Adds, for each word of the codebook, its products with the words that the code has in these places.
    fn add_products<S: F32x16>(&self, s: S, code: &Code, places: Range<usize>, sums: &mut Sums<S>);
    /// The unit of these products.
    fn scale(&self) -> f32;
    /// For each word of the codebook, its product with the cell of the code.
    fn to_cell(&self, code: &Code) -> &Words;
    /// Prepares for the codes with this word.
    fn prefetch<S: F32x16>(&self, s: S, word: u8);
}

/// A codebook of a segment, for one row.
struct Book<'a> {
    row: &'a Row<'a>,
    book: usize,
    /// The codebooks of the segment.
    own: &'a Range<usize>,
}

impl Continuations for Book<'_> {
    #[inline(always)]
    fn places(&self) -> Range<usize> {
        self.own.start + 1..self.book + 1
    }

    #[inline(always)]
    fn add_products<S: F32x16>(&self, s: S, code: &Code, places: Range<usize>, sums: &mut Sums<S>) {
        let Book { row, book, own } = self;
        let pairs = places.map(|place| row.tables.pairs.of(place - 1, code[place], *book, own));
        // The next codebook needs the next blocks of the same words, which lie in the last cache.
        add_pairs::<S, true>(s, pairs, sums);
    }

    #[inline(always)]
    fn scale(&self) -> f32 {
        self.row.tables.pairs.scale(self.book)
    }

    #[inline(always)]
    fn to_cell(&self, code: &Code) -> &Words {
        let cells = by_book(&self.row.tables.cell_words);
        &cells[usize::from(code[0]) * self.row.books.books + self.book]
    }

    #[inline(always)]
    fn prefetch<S: F32x16>(&self, s: S, word: u8) {
        if self.book + 1 < self.own.end {
            let pair = self.row.tables.pairs.of(self.book, word, self.book + 1, self.own);
            for line in pair.as_chunks::<16>().0.iter().step_by(LINE) {
                s.prefetch(line, 0);
            }
        }
    }
}

/// Extends codes by a word of a codebook, and writes the best of them, at most `width`. `alone` is what each word adds
/// to every code. Returns how many codes there are. `grown` is working memory.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "an inlined part of two loops")]
pub(super) fn extend<S: F32x16, C: Continuations, const R: usize>(
    s: S,
    next: &C,
    alone: &[S::V; VECTORS],
    from: &[Code],
    to: &mut [Code],
    scores: &mut [f32; R],
    width: usize,
    grown: &mut [Words],
) -> usize {
    // Codes of a beam descend from few codes a few codebooks ago: most of their words are the same, and are added up once.
    let places = next.places();
    let apart = places.start + agreement(from, places.clone());
    let mut shared = [s.whole_zeros(); VECTORS];
    next.add_products(s, &from[0], places.start..apart, &mut shared);
    let scale = s.splat(next.scale());
    for (i, code) in from.iter().enumerate() {
        let mut whole = shared;
        next.add_products(s, code, apart..places.end, &mut whole);
        let to_cell = next.to_cell(code);
        // Relative to the score of the first candidate.
        let score = s.splat(scores[i] - scores[0]);
        for v in 0..VECTORS {
            let sum = s.add(s.load(&to_cell[v]), s.mul(s.floats(whole[v]), scale));
            let sum = s.add(alone[v], s.add(sum, sum));
            s.store(s.add(score, sum), &mut grown[i][v]);
        }
    }
    let kept = smallest::<S, R>(s, grown[..from.len()].as_flattened());
    let (best, live) = (scores[0], width.min(from.len() * WORDS));
    for i in 0..live.min(R) {
        let (parent, word) = (item(kept[i]) / WORDS % R, item(kept[i]) % WORDS);
        to[i] = from[parent];
        to[i][places.end] = word as u8;
        next.prefetch(s, word as u8);
        scores[i] = best + grown[parent].as_flattened()[word];
    }
    live
}

/// The numbers of 32 times 256 items.
static NUMBERS: [[u32; 16]; MAX_BEAM * VECTORS] = {
    let mut numbers = [[0; 16]; MAX_BEAM * VECTORS];
    let mut i = 0;
    while i < MAX_BEAM * WORDS {
        numbers[i / 16][i % 16] = i as u32;
        i += 1;
    }
    numbers
};

/// The item of a key.
#[inline(always)]
fn item(key: f32) -> usize {
    (key.to_bits() & ITEM) as usize
}

/// The number of the smallest score; the first of those that are equal in the bits that a key keeps.
#[inline(always)]
pub(super) fn smallest_item<S: F32x16>(s: S, scores: &[Floats]) -> usize {
    item(smallest::<S, 1>(s, scores)[0])
}

/// The keys of the `R` smallest scores, ascending.
#[inline(always)]
fn smallest<S: F32x16, const R: usize>(s: S, scores: &[Floats]) -> [f32; R] {
    let mut kept = [s.splat(f32::INFINITY); R];
    for (batch, numbers) in scores.chunks(R).zip(NUMBERS.chunks(R)) {
        let mut keys = [s.splat(f32::INFINITY); R];
        for i in 0..R {
            if i < batch.len() {
                keys[i] = s.number(s.load(&batch[i]), &numbers[i]);
            }
        }
        sort(s, &mut keys);
        kept = merged(s, &kept, &keys);
    }
    // Lanes are sorted. They are merged with those 8, 4, 2 and 1 places away.
    let mut other = kept;
    for i in 0..R {
        other[i] = s.swap8(kept[i]);
    }
    kept = merged(s, &kept, &other);
    for i in 0..R {
        other[i] = s.swap4(kept[i]);
    }
    kept = merged(s, &kept, &other);
    for i in 0..R {
        other[i] = s.swap2(kept[i]);
    }
    kept = merged(s, &kept, &other);
    for i in 0..R {
        other[i] = s.swap1(kept[i]);
    }
    kept = merged(s, &kept, &other);
    let mut out = [0f32; R];
    for i in 0..R {
        let mut lanes = [0f32; 16];
        s.store(kept[i], &mut lanes);
        out[i] = lanes[0];
    }
    out
}

/// In each lane, the `R` smallest of two sorted columns, sorted.
#[inline(always)]
fn merged<S: F32x16, const R: usize>(s: S, a: &[S::V; R], b: &[S::V; R]) -> [S::V; R] {
    let mut keys = *a;
    for i in 0..R {
        keys[i] = s.min(a[i], b[R - 1 - i]);
    }
    // The minima rise and then fall: a bitonic sequence.
    let mut distance = R / 2;
    while distance > 0 {
        for i in 0..R {
            if i & distance == 0 {
                exchange(s, &mut keys, i, i + distance);
            }
        }
        distance /= 2;
    }
    keys
}

/// Sorts each lane: Batcher's odd-even merge sort.
#[inline(always)]
fn sort<S: F32x16, const R: usize>(s: S, keys: &mut [S::V; R]) {
    let mut size = 1;
    while size < R {
        let mut distance = size;
        while distance > 0 {
            let mut from = distance % size;
            while from + distance < R {
                for i in from..R.min(from + distance) {
                    if i + distance < R && i / (2 * size) == (i + distance) / (2 * size) {
                        exchange(s, keys, i, i + distance);
                    }
                }
                from += 2 * distance;
            }
            distance /= 2;
        }
        size *= 2;
    }
}

/// Puts the smaller keys of two vectors first.
#[inline(always)]
fn exchange<S: F32x16, const R: usize>(s: S, keys: &mut [S::V; R], i: usize, j: usize) {
    let (a, b) = (keys[i], keys[j]);
    keys[i] = s.min(a, b);
    keys[j] = s.max(a, b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    struct Smallest<'a, const R: usize>(&'a [Floats]);

    impl<const R: usize> Work16 for Smallest<'_, R> {
        type Output = [f32; R];

        #[inline(always)]
        fn run<S: F32x16>(self, s: S) -> [f32; R] {
            smallest(s, self.0)
        }
    }

    /// Compares with sorting.
    fn check<const R: usize>(stream: &mut Stream) {
        for count in [1, 2, 15, 16, 17, 100, 512] {
            let scores: Vec<Floats> =
                (0..count).map(|_| std::array::from_fn(|_| stream.normal() as f32)).collect();
            let key = |(x, i): (&f32, u32)| f32::from_bits(x.to_bits() & !ITEM | i);
            let mut keys: Vec<f32> = scores.as_flattened().iter().zip(0..).map(key).collect();
            keys.sort_unstable_by(f32::total_cmp);
            let known = keys.len().min(R);
            for isa in Isa::every() {
                let got = isa.sixteens(Smallest::<R>(&scores));
                assert_eq!(got[..known], keys[..known], "{R} of {count} vectors");
            }
        }
    }

    #[test]
    fn selection_equals_sorting() {
        let mut stream = Stream::new(5, Purpose::Sample, 0, 0);
        for _ in 0..5 {
            check::<1>(&mut stream);
            check::<8>(&mut stream);
            check::<32>(&mut stream);
        }
    }
}
