//! Batches of rows: a borrowed slice of any element type, and the dimension.
//!
//! A batch is never copied in full. Each block is converted to `f32` when it is used, after the
//! reference point of the stream was subtracted. So `f64` rows with a large common offset keep their
//! digits. Cost: one pass over the block, which is in cache by then.

use crate::error::{Error, Result};
use crate::names::names;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The largest accepted magnitude, 2^50. Its square, summed over 2^26 rows, does not overflow single precision.
pub(crate) const LIMIT: f32 = (1u64 << 50) as f32;

/// How rows are compared.
///
/// ```
/// use frosh::{Config, Metric};
/// let config = Config::new(384).metric(Metric::Cosine);
/// assert_eq!("cosine".parse::<Metric>()?, Metric::Cosine);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metric {
    /// Euclidean distance. Rows are used unchanged.
    #[default]
    L2,
    /// Cosine similarity. Every row is first scaled to length 1; a row of zeros stays zero.
    Cosine,
}

names!(Metric, "metric", L2 => "l2", Cosine => "cosine");

/// A borrowed batch of rows, stored row after row in one slice.
///
/// ```
/// use frosh::Rows;
/// let rows = Rows::new(&[1u8, 2, 3, 4, 5, 6], 3)?;
/// assert_eq!((rows.len(), rows.dim()), (2, 3));
/// assert_eq!(rows.row(1), [4, 5, 6]);
/// assert!(Rows::new(&[1.0f32, 2.0, 3.0], 2).is_err()); // one and a half rows
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, T> {
    data: &'a [T],
    dim: usize,
}

impl<'a, T: Element> Rows<'a, T> {
    /// Borrows `data` as rows of `dim` values. Values are not checked; see [`Rows::check`].
    ///
    /// # Errors
    ///
    /// [`Error::Ragged`] if `dim` is 0 or does not divide the number of values.
    pub fn new(data: &'a [T], dim: usize) -> Result<Self> {
        if dim == 0 || !data.len().is_multiple_of(dim) {
            return Err(Error::Ragged { length: data.len(), dim });
        }
        Ok(Self { data, dim })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.data.len() / self.dim
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The values, row after row.
    pub fn as_slice(&self) -> &'a [T] {
        self.data
    }

    /// Row `i`.
    ///
    /// # Panics
    ///
    /// If there is no row `i`.
    pub fn row(&self, i: usize) -> &'a [T] {
        // An explicit check: for a huge `i` the product below wraps around, and could select another row.
        assert!(i < self.len(), "row {i} of {} rows", self.len());
        &self.data[i * self.dim..(i + 1) * self.dim]
    }

    /// Checks that every value can be learned from and encoded. One pass over the values.
    ///
    /// # Errors
    ///
    /// [`Error::NotFinite`] or [`Error::TooLarge`] for the first row with NaN, infinity, or a magnitude above 2^50.
    ///
    /// ```
    /// use frosh::{Error, Rows};
    /// let rows = Rows::new(&[1.0f32, 2.0, f32::NAN, 4.0], 2)?;
    /// assert!(matches!(rows.check(), Err(Error::NotFinite { row: 1, column: 0, .. })));
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn check(&self) -> Result<()> {
        check(self)
    }

    /// The rows of a range.
    ///
    /// # Panics
    ///
    /// If the range ends before it starts, or after the last row.
    ///
    /// ```
    /// # use frosh::Rows;
    /// let rows = Rows::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], 2)?;
    /// let (queries, base) = (rows.slice(0..1), rows.slice(1..3));
    /// assert_eq!((queries.len(), base.row(0)), (1, &[3.0, 4.0][..]));
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let rows = self.len();
        assert!(range.start <= range.end && range.end <= rows, "rows {range:?} of {rows} rows");
        Self { data: &self.data[range.start * self.dim..range.end * self.dim], dim: self.dim }
    }
}

/// The element types of rows: `f32`, `f64`, `f16`, `bf16`, `u8` and `i8`. Other crates cannot implement it.
///
/// ```
/// use frosh::{Element, Result, Rows, Sketcher};
/// /// Learns from rows of any element type.
/// fn learn<T: Element>(sketcher: &mut Sketcher, values: &[T]) -> Result<()> {
///     sketcher.push(Rows::new(values, sketcher.dim())?)
/// }
/// # let mut sketcher = Sketcher::new(frosh::Config::new(2))?;
/// learn(&mut sketcher, &[1.0f32, 2.0])?;
/// learn(&mut sketcher, &[3u8, 4])?;
/// assert_eq!(sketcher.rows(), 2);
/// # Ok::<(), frosh::Error>(())
/// ```
pub trait Element: sealed::Sealed + Copy + Send + Sync + std::fmt::Debug + 'static {}

pub(crate) mod sealed {
    /// The operations on an element type. Sealed, so that they can change between releases.
    pub trait Sealed: Sized {
        /// Writes `self * scale - reference` as `f32`.
        fn centre(row: &[Self], scale: f64, reference: &[f32], out: &mut [f32]);
        /// The largest magnitude; NaN or infinity if any value is.
        fn magnitude(row: &[Self]) -> f64;
        /// Sum of squares.
        fn square_norm(row: &[Self]) -> f64;
        /// The value in double precision.
        fn to_f64(self) -> f64;
        /// All values in double precision, times `scale`.
        fn widen(row: &[Self], scale: f64, out: &mut [f64])
        where
            Self: Copy,
        {
            out.iter_mut().zip(row).for_each(|(o, x)| *o = x.to_f64() * scale);
        }
        /// The slice itself if it is `f32` already.
        fn as_f32(_: &[Self]) -> Option<&[f32]> {
            None
        }
    }
}

/// The largest magnitude, by comparing bit patterns: those of infinity and NaN are larger than all others.
fn magnitude_f32(row: &[f32]) -> f64 {
    f32::from_bits(crate::arch::magnitude_bits(row)).into()
}

/// Sum of squares, added in the same order for every element type, so that equal values have equal norms.
pub(crate) fn square_norm<T: Copy + Into<f64>>(row: &[T]) -> f64 {
    let mut parts = [0f64; 16];
    add_squares(row, &mut parts);
    parts.iter().sum()
}

/// Adds the squares to sixteen partial sums, which vectorises and reduces rounding error.
fn add_squares<T: Copy + Into<f64>>(row: &[T], parts: &mut [f64; 16]) {
    for chunk in row.chunks(16) {
        for (p, x) in parts.iter_mut().zip(chunk) {
            let x: f64 = (*x).into();
            *p += x * x;
        }
    }
}

/// `out * scale - reference` in place.
fn centre_in_place(scale: f64, reference: &[f32], out: &mut [f32]) {
    if scale == 1.0 {
        out.iter_mut().zip(reference).for_each(|(o, r)| *o -= r);
    } else {
        // In double precision: the scale of a row of tiny values overflows single precision.
        for (o, r) in out.iter_mut().zip(reference) {
            *o = (f64::from(*o) * scale - f64::from(*r)) as f32;
        }
    }
}

impl Element for f32 {}
impl sealed::Sealed for f32 {
    fn centre(row: &[Self], scale: f64, reference: &[f32], out: &mut [f32]) {
        out.copy_from_slice(row);
        centre_in_place(scale, reference, out);
    }
    fn magnitude(row: &[Self]) -> f64 {
        magnitude_f32(row)
    }
    fn square_norm(row: &[Self]) -> f64 {
        square_norm(row)
    }
    fn to_f64(self) -> f64 {
        self.into()
    }
    fn as_f32(row: &[Self]) -> Option<&[f32]> {
        Some(row)
    }
}

impl Element for f64 {}
impl sealed::Sealed for f64 {
    fn centre(row: &[Self], scale: f64, reference: &[f32], out: &mut [f32]) {
        for ((o, &x), &r) in out.iter_mut().zip(row).zip(reference) {
            *o = (x * scale - f64::from(r)) as f32;
        }
    }
    fn magnitude(row: &[Self]) -> f64 {
        f64::from_bits(row.iter().fold(0, |m, x| m.max(x.abs().to_bits())))
    }
    fn square_norm(row: &[Self]) -> f64 {
        square_norm(row)
    }
    fn to_f64(self) -> f64 {
        self
    }
}

/// Half-precision types. They use the slice conversion of `half`, which uses the CPU's conversion instruction.
macro_rules! half_element {
    ($t:ty) => {
        impl Element for $t {}
        impl sealed::Sealed for $t {
            fn centre(row: &[Self], scale: f64, reference: &[f32], out: &mut [f32]) {
                row.convert_to_f32_slice(out);
                centre_in_place(scale, reference, out);
            }
            fn widen(row: &[Self], scale: f64, out: &mut [f64]) {
                // In pieces of 256: the conversion instruction is slow for single values.
                let mut piece = [0f32; 256];
                for (out, row) in out.chunks_mut(256).zip(row.chunks(256)) {
                    let piece = &mut piece[..row.len()];
                    row.convert_to_f32_slice(piece);
                    out.iter_mut().zip(&*piece).for_each(|(o, x)| *o = f64::from(*x) * scale);
                }
            }
            fn magnitude(row: &[Self]) -> f64 {
                let largest = row.iter().fold(0, |m, x| m.max(x.to_bits() & 0x7fff));
                Self::from_bits(largest).into()
            }
            fn square_norm(row: &[Self]) -> f64 {
                // The piece length is a multiple of sixteen, so the order of the sums is that of `square_norm`.
                let (mut piece, mut parts) = ([0f32; 256], [0f64; 16]);
                for row in row.chunks(256) {
                    let piece = &mut piece[..row.len()];
                    row.convert_to_f32_slice(piece);
                    add_squares(piece, &mut parts);
                }
                parts.iter().sum()
            }
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    };
}
half_element!(f16);
half_element!(bf16);

macro_rules! byte_element {
    ($t:ty, $minus:ident) => {
        impl Element for $t {}
        impl sealed::Sealed for $t {
            fn centre(row: &[Self], scale: f64, reference: &[f32], out: &mut [f32]) {
                if scale == 1.0 {
                    return crate::arch::$minus(row, reference, out);
                }
                out.iter_mut().zip(row).for_each(|(o, x)| *o = f32::from(*x));
                centre_in_place(scale, reference, out);
            }
            fn magnitude(_: &[Self]) -> f64 {
                0.0 // every byte is finite and small
            }
            fn square_norm(row: &[Self]) -> f64 {
                square_norm(row)
            }
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    };
}
byte_element!(u8, u8_minus);
byte_element!(i8, i8_minus);

/// The error for the first value of `row` that is not finite or too large.
fn rejection<T: Element>(row: &[T], number: usize) -> Error {
    let limit = f64::from(LIMIT);
    let bad = |v: f64| !v.is_finite() || v.abs() > limit;
    let (column, value) =
        row.iter().map(|x| x.to_f64()).enumerate().find(|(_, v)| bad(*v)).unwrap_or((0, f64::NAN));
    if value.is_finite() {
        Error::TooLarge { row: number, column, value, limit }
    } else {
        Error::NotFinite { row: number, column, value }
    }
}

/// Whether a row with this largest magnitude is accepted.
pub(crate) fn usable(magnitude: f64) -> bool {
    magnitude <= f64::from(LIMIT)
}

/// The error for the first row that is not accepted.
pub(crate) fn check<T: Element>(rows: &Rows<'_, T>) -> Result<()> {
    for (number, row) in rows.as_slice().chunks_exact(rows.dim()).enumerate() {
        if !usable(T::magnitude(row)) {
            return Err(rejection(row, number));
        }
    }
    Ok(())
}

/// Checks one row and writes it to `out`, scaled for `metric`, minus `reference`.
pub(crate) fn load<T: Element>(
    row: &[T],
    number: usize,
    metric: Metric,
    reference: &[f32],
    out: &mut [f32],
) -> Result<()> {
    if !usable(T::magnitude(row)) {
        return Err(rejection(row, number));
    }
    T::centre(row, scale(row, metric), reference, out);
    Ok(())
}

/// The factor by which `metric` multiplies a row.
fn scale<T: Element>(row: &[T], metric: Metric) -> f64 {
    match metric {
        Metric::L2 => 1.0,
        Metric::Cosine => {
            let norm = T::square_norm(row).sqrt();
            if norm > 0.0 { 1.0 / norm } else { 0.0 }
        }
    }
}

/// Writes a row that was checked before to `out` in double precision, scaled for `metric`.
pub(crate) fn widen<T: Element>(row: &[T], metric: Metric, out: &mut [f64]) {
    let scale = scale(row, metric);
    T::widen(row, scale, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded<T: Element>(row: &[T], metric: Metric, reference: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; row.len()];
        load(row, 0, metric, reference, &mut out).unwrap();
        out
    }

    #[test]
    fn every_element_type_gives_the_same_row() {
        let reference = [0.5, -1.0, 2.0, 0.0];
        let want = [0.5, 3.0, -5.0, 0.0];
        let f = [1.0f32, 2.0, -3.0, 0.0];
        assert_eq!(loaded(&f, Metric::L2, &reference), want);
        assert_eq!(loaded(&f.map(f64::from), Metric::L2, &reference), want);
        assert_eq!(loaded(&f.map(f16::from_f32), Metric::L2, &reference), want);
        assert_eq!(loaded(&f.map(bf16::from_f32), Metric::L2, &reference), want);
        assert_eq!(loaded(&f.map(|x| x as i8), Metric::L2, &reference), want);
        assert_eq!(loaded(&[1u8, 2, 3, 0], Metric::L2, &[0.0; 4]), [1.0, 2.0, 3.0, 0.0]);
    }

    #[test]
    fn double_precision_keeps_its_digits_around_a_large_offset() {
        let got = loaded(&[1e9 + 0.125, 1e9 - 0.25], Metric::L2, &[1e9, 1e9]);
        assert_eq!(got, [0.125, -0.25]);
    }

    #[test]
    fn cosine_scales_to_unit_length_and_keeps_zero_rows() {
        assert_eq!(loaded(&[3.0f32, 4.0], Metric::Cosine, &[0.0; 2]), [0.6, 0.8]);
        assert_eq!(loaded(&[0u8, 0], Metric::Cosine, &[0.0; 2]), [0.0, 0.0]);
    }

    #[test]
    fn rows_and_ranges_out_of_bounds_panic() {
        let data = [1u8, 2, 3, 4, 5, 6, 7, 8];
        let rows = Rows::new(&data, 4).unwrap();
        assert_eq!((rows.row(1), rows.slice(2..2).len()), (&data[4..], 0));
        let panics =
            |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
        // 2^62 times the dimension 4 wraps around to 0.
        for i in [2, usize::MAX, 1 << (usize::BITS - 2)] {
            assert!(panics(&|| drop(rows.row(i).to_vec())), "row {i}");
        }
        let wrapped = 1 << (usize::BITS - 2);
        #[expect(clippy::reversed_empty_ranges, reason = "the test checks that it panics")]
        for range in [0..3, 2..1, wrapped..wrapped + 1, 0..wrapped] {
            assert!(panics(&|| drop(rows.slice(range.clone()).len().to_string())), "{range:?}");
        }
    }

    #[test]
    fn a_bad_value_is_reported_with_row_and_column() {
        fn place<T: Element>(data: &[T]) -> (usize, usize) {
            match check(&Rows::new(data, 2).unwrap()) {
                Err(Error::NotFinite { row, column, .. }) => (row, column),
                Err(Error::TooLarge { row, column, .. }) => (row + 100, column),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(place(&[1.0, 2.0, 3.0, f32::NAN]), (1, 1));
        assert_eq!(place(&[1.0, f64::NEG_INFINITY, 3.0, f64::NAN]), (0, 1));
        assert_eq!(place(&[f16::ONE, f16::ONE, f16::NAN, f16::INFINITY]), (1, 0));
        assert_eq!(place(&[bf16::ONE, bf16::INFINITY]), (0, 1));
        assert_eq!(place(&[1.0f64, 1e200]), (100, 1));
        assert_eq!(place(&[-1e16f32, 1.0]), (100, 0));
        assert!(check(&Rows::new(&[LIMIT, -LIMIT], 2).unwrap()).is_ok());
    }
}
