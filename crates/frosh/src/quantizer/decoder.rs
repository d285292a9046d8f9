//! Decoding of packed codes: how far a row lies from its cell. Searches bound distances by it.

use super::codebooks::Codebooks;
use super::scalar::ScalarCode;
use crate::arch::Isa;
use crate::arch::sixteen::{F32x16, Work16, square, square_distance};

/// Codebooks in the coordinates of distances.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Cells and words, divided by the scales.
    books: Codebooks,
    scalar: ScalarCode,
    /// Squared lengths of the cells.
    cell_squares: Vec<f32>,
}

/// Where a decoded row c with the cell a lies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Place {
    /// |c - a|
    pub(crate) radius: f32,
    /// tau - |c|^2
    pub(crate) excess: f32,
}

impl Decoder {
    pub(super) fn new(books: &Codebooks, scales: &[f32], scalar: &ScalarCode) -> Self {
        let mut books = books.clone();
        for cell in books.cells.chunks_exact_mut(books.k) {
            cell.iter_mut().zip(scales).for_each(|(x, s)| *x /= s);
        }
        for i in 0..books.segments.len() {
            let (own, range) = (books.segments[i].coordinates.clone(), books.words_of(i));
            for word in books.words[range].chunks_exact_mut(own.len()) {
                word.iter_mut().zip(&scales[own.clone()]).for_each(|(x, s)| *x /= s);
            }
        }
        let square = |cell: &[f32]| cell.iter().map(|x| x * x).sum();
        let cell_squares = books.cells.chunks_exact(books.k).map(square).collect();
        Self { books, scalar: scalar.clone(), cell_squares }
    }

    /// |v - cell|^2 for a query with |v|^2 = `square`, whose table has this entry for the cell.
    pub(crate) fn cell_distance(&self, cell: usize, square: f32, entry: f32) -> f64 {
        // The entry is the predicted part of tau less 2 v.cell.
        let twice_product = f64::from(self.scalar.prediction[cell]) - f64::from(entry);
        f64::from(square) - twice_product + f64::from(self.cell_squares[cell])
    }

    /// The places of packed codes of `width` bytes.
    pub(crate) fn places(&self, codes: &[u8], width: usize, out: &mut [Place]) {
        Isa::detect().sixteens(Places { decoder: self, codes, width, out });
    }
}

struct Places<'a> {
    decoder: &'a Decoder,
    codes: &'a [u8],
    width: usize,
    out: &'a mut [Place],
}

impl Work16 for Places<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) {
        let Decoder { books, scalar, .. } = self.decoder;
        let mut decoded = vec![0f32; books.k];
        for (code, place) in self.codes.chunks_exact(self.width).zip(self.out) {
            let (code, level) = code.split_at(books.books + 1);
            books.decode(code, &mut decoded);
            let cell = &books.cells[usize::from(code[0]) * books.k..][..books.k];
            let tau = scalar.predict(code) + scalar.levels[usize::from(level[0])];
            let radius = square_distance(s, &decoded, cell).sqrt();
            *place = Place { radius, excess: tau - square(s, &decoded) };
        }
    }
}
