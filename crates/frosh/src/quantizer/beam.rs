//! Beam search: the code of a row, by the products of the row with all entries.
//!
//! Encoding minimises |z - cell - sum of words|^2 over all codes. Up to a constant it is
//!
//! ```text
//! |cell|^2 - 2 z.cell + sum_m ( |w_m|^2 - 2 z.w_m + 2 cell.w_m + 2 sum_{p < m} w_p.w_m )
//! ```
//!
//! so that everything is a sum of table entries. The beam starts with the best cells. Each codebook extends every
//! candidate by 16 words and the best are kept. Then one sweep changes the cell or one word at a time while that helps.
//!
//! **Selection.** The best of all continuations are found without branches. The last bits of a score are replaced by the number
//! of the continuation. Sixteen such keys fill a vector, so a sorting network of minima and maxima sorts all lanes at once,
//! and the lanes are then merged ([`smallest_keys`]). The bits cost little precision, because scores are taken relative to the
//! best candidate before.

use super::codebooks::{Codebooks, Tables, WORDS};
use crate::arch::Isa;
use crate::arch::sixteen::{F32x16, Floats, ITEM, Work16};

/// Largest width of the beam.
pub(crate) const MAX_BEAM: usize = 32;
/// The longest code: a cell and the nibbles of 64 bytes, rounded up so that copies have a fixed size.
const MAX_LENGTH: usize = 128;
type Code = [u8; MAX_LENGTH];

/// Working memory of the search for one thread.
pub(crate) struct Beam {
    width: usize,
    /// Cells and nibbles of the candidates; two generations.
    codes: [[Code; MAX_BEAM]; 2],
    cells: Vec<f32>,
}

impl Beam {
    /// A beam of `width` candidates for these codebooks.
    pub(crate) fn new(books: &Codebooks, width: usize) -> Self {
        assert!(books.books < MAX_LENGTH);
        Self {
            width: width.clamp(1, MAX_BEAM),
            codes: [[[0; MAX_LENGTH]; MAX_BEAM]; 2],
            cells: vec![0.0; books.cell_count],
        }
    }

    /// Writes the codes of rows: for each the cell and a nibble for each codebook. `products` are those of
    /// [`Products::of`](super::codebooks::Products::of).
    pub(crate) fn encode(
        &mut self,
        isa: Isa,
        books: &Codebooks,
        tables: &Tables,
        products: &[f32],
        sweeps: usize,
        codes: &mut [u8],
    ) {
        // The number of vectors is a power of two, for the sorting network. Each takes time to compile: three will do.
        match self.width {
            1 => isa.sixteens(Rows::<1> { beam: self, books, tables, products, sweeps, codes }),
            2..=8 => isa.sixteens(Rows::<8> { beam: self, books, tables, products, sweeps, codes }),
            _ => isa.sixteens(Rows::<32> { beam: self, books, tables, products, sweeps, codes }),
        }
    }
}

/// Rows to encode. `R` is at least the width of the beam.
struct Rows<'a, const R: usize> {
    beam: &'a mut Beam,
    books: &'a Codebooks,
    tables: &'a Tables,
    products: &'a [f32],
    sweeps: usize,
    codes: &'a mut [u8],
}

impl<const R: usize> Work16 for Rows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) {
        let Rows { beam, books, tables, products, sweeps, codes } = self;
        let rows = products.chunks_exact(books.entries());
        for (code, products) in codes.chunks_exact_mut(books.books + 1).zip(rows) {
            let row = Row::new(books, tables, products);
            row.best::<S, R>(s, beam, code);
            for _ in 0..sweeps {
                if !row.sweep(s, &mut beam.cells, code) {
                    break;
                }
            }
        }
    }
}

/// One row and the tables that its code is found by.
struct Row<'a> {
    books: &'a Codebooks,
    tables: &'a Tables,
    /// Products of the row with the cells, and with the words of each codebook.
    to_cells: &'a [f32],
    to_words: &'a [Floats],
    /// Squared lengths of the words.
    squares: &'a [Floats],
}

impl<'a> Row<'a> {
    #[inline(always)]
    fn new(books: &'a Codebooks, tables: &'a Tables, products: &'a [f32]) -> Self {
        let (to_cells, to_words) = products.split_at(books.cell_count);
        let squares = tables.squares[books.cell_count..].as_chunks().0;
        Self { books, tables, to_cells, to_words: to_words.as_chunks().0, squares }
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

    /// |w|^2 - 2 z.w for the words of a codebook.
    #[inline(always)]
    fn alone<S: F32x16>(&self, s: S, book: usize) -> S::V {
        let product = s.load(&self.to_words[book]);
        s.sub(s.load(&self.squares[book]), s.add(product, product))
    }

    /// The products of a cell with the words of a codebook.
    #[inline(always)]
    fn cross<S: F32x16>(&self, s: S, cell: u8, book: usize) -> S::V {
        let rows = self.tables.cell_words.as_chunks().0;
        s.load(&rows[usize::from(cell) * self.books.books + book])
    }

    /// The products of word `word` of codebook `other` with the words of the codebook at `within` of the same segment of
    /// `own` codebooks.
    #[inline(always)]
    fn pair<S: F32x16>(&self, s: S, other: usize, word: u8, own: usize, within: usize) -> S::V {
        let rows = self.tables.pairs.as_chunks().0;
        s.load(&rows[self.tables.firsts[other] / WORDS + usize::from(word) * own + within])
    }

    /// Writes the best code that the beam finds.
    #[inline(always)]
    fn best<S: F32x16, const R: usize>(&self, s: S, beam: &mut Beam, code: &mut [u8]) {
        let Beam { width, codes: generations, cells } = beam;
        self.score_cells(cells);
        let first = smallest_cells::<S, R>(s, cells);
        let mut live = (*width).min(cells.len());
        let mut scores = [0f32; R];
        for i in 0..live.min(R) {
            let cell = item(first[i]).min(cells.len() - 1);
            generations[0][i][0] = cell as u8;
            scores[i] = cells[cell];
        }
        let mut grown = [[0f32; WORDS]; R];
        let mut generation = 0;
        for segment in &self.books.segments {
            let own = segment.books.len();
            for book in segment.books.clone() {
                let (alone, within) = (self.alone(s, book), book - segment.books.start);
                let mut keys = [s.splat(f32::INFINITY); R];
                for i in 0..live.min(R) {
                    let code = &generations[generation][i];
                    let mut sum = self.cross(s, code[0], book);
                    for other in segment.books.start..book {
                        sum = s.add(sum, self.pair(s, other, code[other + 1], own, within));
                    }
                    // Relative to the score of the first candidate.
                    let score = s.splat(scores[i] - scores[0]);
                    let score = s.add(score, s.add(alone, s.add(sum, sum)));
                    s.store(score, &mut grown[i]);
                    keys[i] = s.number(score, &NUMBERS[i]);
                }
                let kept = smallest_keys(s, keys);
                let best = scores[0];
                live = (*width).min(live * WORDS);
                let [even, odd] = generations;
                let (from, to) = if generation == 0 { (even, odd) } else { (odd, even) };
                for i in 0..live.min(R) {
                    let (parent, word) = (item(kept[i]) / WORDS, item(kept[i]) % WORDS);
                    to[i] = from[parent];
                    to[i][book + 1] = word as u8;
                    scores[i] = best + grown[parent % R][word];
                }
                generation = 1 - generation;
            }
        }
        code.copy_from_slice(&generations[generation][0][..code.len()]);
    }

    /// Changes the cell, and then each word, to the best one beside the rest of the code. Returns whether anything changed.
    #[inline(always)]
    fn sweep<S: F32x16>(&self, s: S, scores: &mut [f32], code: &mut [u8]) -> bool {
        let cell_count = self.books.cell_count;
        let mut changed = false;
        self.score_cells(scores);
        for (book, word) in code[1..].iter().enumerate() {
            let at = (book * WORDS + usize::from(*word)) * cell_count;
            let row = &self.tables.word_cells[at..][..cell_count];
            for (to, x) in scores.iter_mut().zip(row) {
                *to += 2.0 * x;
            }
        }
        let best = item(smallest_cells::<S, 1>(s, scores)[0]).min(cell_count - 1);
        if scores[best] < scores[usize::from(code[0])] {
            code[0] = best as u8;
            changed = true;
        }
        for segment in &self.books.segments {
            let own = segment.books.len();
            for book in segment.books.clone() {
                let within = book - segment.books.start;
                let mut sum = self.cross(s, code[0], book);
                for other in segment.books.clone() {
                    if other != book {
                        sum = s.add(sum, self.pair(s, other, code[other + 1], own, within));
                    }
                }
                let mut lanes = [0f32; WORDS];
                let score = s.add(self.alone(s, book), s.add(sum, sum));
                s.store(score, &mut lanes);
                // Relative to the present word, so that keys are precise where it matters.
                let now = lanes[usize::from(code[book + 1])];
                let key = s.number(s.sub(score, s.splat(now)), &NUMBERS[0]);
                let best = item(smallest_keys(s, [key])[0]) % WORDS;
                if lanes[best] < now {
                    code[book + 1] = best as u8;
                    changed = true;
                }
            }
        }
        changed
    }
}

/// The numbers of 32 times 16 items.
static NUMBERS: [[u32; WORDS]; MAX_BEAM] = {
    let mut numbers = [[0; WORDS]; MAX_BEAM];
    let mut i = 0;
    while i < MAX_BEAM * WORDS {
        numbers[i / WORDS][i % WORDS] = i as u32;
        i += 1;
    }
    numbers
};

/// The item of a key.
#[inline(always)]
fn item(key: f32) -> usize {
    (key.to_bits() & ITEM) as usize
}

/// The `R` smallest keys of all cells, ascending.
#[inline(always)]
fn smallest_cells<S: F32x16, const R: usize>(s: S, scores: &[f32]) -> [f32; R] {
    let mut kept = [s.splat(f32::INFINITY); R];
    for first in (0..scores.len()).step_by(R * WORDS) {
        let mut keys = [s.splat(f32::INFINITY); R];
        for (i, keys) in keys.iter_mut().enumerate() {
            let at = first + i * WORDS;
            if at < scores.len() {
                let mut padded = [f32::MAX; WORDS];
                let part = &scores[at..scores.len().min(at + WORDS)];
                padded[..part.len()].copy_from_slice(part);
                *keys = s.number(s.load(&padded), &NUMBERS[at / WORDS % MAX_BEAM]);
            }
        }
        sort(s, &mut keys);
        kept = merged(s, &kept, &keys);
    }
    smallest_sorted(s, kept)
}

/// The `R` smallest of 16 `R` keys, ascending.
#[inline(always)]
fn smallest_keys<S: F32x16, const R: usize>(s: S, mut keys: [S::V; R]) -> [f32; R] {
    sort(s, &mut keys);
    smallest_sorted(s, keys)
}

/// The same, if every lane is sorted: lanes are merged with those 8, 4, 2 and 1 places away.
#[inline(always)]
fn smallest_sorted<S: F32x16, const R: usize>(s: S, mut keys: [S::V; R]) -> [f32; R] {
    let mut other = keys;
    for i in 0..R {
        other[i] = s.swap8(keys[i]);
    }
    keys = merged(s, &keys, &other);
    for i in 0..R {
        other[i] = s.swap4(keys[i]);
    }
    keys = merged(s, &keys, &other);
    for i in 0..R {
        other[i] = s.swap2(keys[i]);
    }
    keys = merged(s, &keys, &other);
    for i in 0..R {
        other[i] = s.swap1(keys[i]);
    }
    keys = merged(s, &keys, &other);
    let mut out = [0f32; R];
    for i in 0..R {
        let mut lanes = [0f32; WORDS];
        s.store(keys[i], &mut lanes);
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

    /// The smallest keys of vectors, and of a list of scores.
    struct Smallest<'a, const R: usize>(&'a [Floats; R], &'a [f32]);

    impl<const R: usize> Work16 for Smallest<'_, R> {
        type Output = [[f32; R]; 2];

        #[inline(always)]
        fn run<S: F32x16>(self, s: S) -> [[f32; R]; 2] {
            let mut keys = [s.splat(0.0); R];
            for i in 0..R {
                keys[i] = s.number(s.load(&self.0[i]), &NUMBERS[i]);
            }
            [smallest_keys(s, keys), smallest_cells(s, self.1)]
        }
    }

    /// Compares with sorting.
    fn check<const R: usize>(stream: &mut Stream) {
        let scores: [Floats; R] =
            std::array::from_fn(|_| std::array::from_fn(|_| stream.normal() as f32));
        let key = |(x, i): (&f32, u32)| f32::from_bits(x.to_bits() / 512 * 512 + i);
        for count in [1, 15, 16, 17, 100, 256] {
            let cells: Vec<f32> = (0..count).map(|_| stream.normal() as f32).collect();
            let [mut keys, mut of_cells]: [Vec<f32>; 2] = [scores.as_flattened(), &cells]
                .map(|scores| scores.iter().zip(0..).map(key).collect());
            keys.sort_unstable_by(f32::total_cmp);
            of_cells.sort_unstable_by(f32::total_cmp);
            for isa in Isa::every() {
                let got = isa.sixteens(Smallest(&scores, &cells));
                assert_eq!(got[0][..], keys[..R]);
                let known = count.min(R);
                assert_eq!(got[1][..known], of_cells[..known], "{R} of {count}");
            }
        }
    }

    #[test]
    fn selection_equals_sorting() {
        let mut stream = Stream::new(5, Purpose::Sample, 0, 0);
        for _ in 0..20 {
            check::<1>(&mut stream);
            check::<8>(&mut stream);
            check::<32>(&mut stream);
        }
    }
}
