//! Packed codes of rows, and Hamming distances between them.

use crate::error::{Error, Result};
use crate::hasher::estimator::FactorColumn;
use crate::pool::Pool;
use crate::search::hamming::{Neighbour, Scan, Table, adaptive, distance};
use crate::search::options::{Hit, QuerySet, Search};
use crate::search::ranking::{CellOrderCache, Queries, Ranking};
use crate::sketch::config::MAX_DIM;
use crate::storage::mapped::Bytes;
use std::fmt;

/// Identifies a model by a hash of its content.
///
/// [`Codes`] store the id of their model. Codes of different models cannot be compared.
///
/// ```
/// use frosh::{Codes, HasherId};
/// let id = HasherId::foreign(0xbeef); // of a hash function that frosh did not fit
/// let codes = Codes::from_packed(id, 8, vec![0, 255])?;
/// assert_eq!(codes.hasher(), id);
/// assert!(id.to_string().ends_with("beef"));
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HasherId(pub(crate) u128);

impl HasherId {
    /// An id for a hash function of another library. Use one number for each function, so that only codes of the same
    /// function are compared.
    pub fn foreign(name: u128) -> Self {
        Self(name)
    }
}

impl fmt::Display for HasherId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Packed codes of rows.
///
/// Codes store the id of the model that made them. Comparing codes of different models is an error.
///
/// **Layout.** Bit k of a row is bit k mod 8 of its byte k / 8: least significant bit first, as in little-endian 64-bit
/// words, in the binary indexes of FAISS and in `numpy.packbits(bitorder="little")`. A bit is 1 if the projection is above
/// zero. Bits past the last one are 0.
///
/// **Cost.** ceil(bits / 8) bytes a row, and one or two bytes of factors if they are stored. A search is one pass over the
/// codes for a batch of queries.
///
/// ```
/// use frosh::{Codes, HasherId};
/// let id = HasherId::foreign(7);
/// let mut codes = Codes::from_packed(id, 12, vec![0b1111_0000, 0b0001, 0, 0])?; // two rows of 12 bits
/// assert!(codes.bit(0, 4) && codes.bit(0, 8));
/// assert_eq!(codes.distance(0, &codes, 1)?, 5);
///
/// codes.append(&Codes::from_packed(id, 12, vec![0xff, 0x0f])?)?;
/// let hits = codes.nearest(&codes, 2)?;
/// assert_eq!((hits[2][1].id, hits[2][1].distance), (0, 7.0));
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codes {
    pub(crate) bits: usize,
    pub(crate) hasher: HasherId,
    pub(crate) data: Bytes,
    /// The factor bytes of the rows (see `hasher/estimator.rs`), if they are stored.
    pub(crate) factors: Option<FactorColumn>,
    /// Whether the bytes are those of a quantiser, and not sign bits.
    pub(crate) quantized: bool,
    /// The rows in the order of their cells, for codes of a quantiser.
    pub(crate) cell_order: CellOrderCache,
}

impl Codes {
    pub(crate) fn new(bits: usize, hasher: HasherId, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        debug_assert!(data.len().is_multiple_of(bits.div_ceil(8)));
        let (quantized, cell_order) = (false, CellOrderCache::default());
        Self { bits, hasher, data, factors: None, quantized, cell_order }
    }

    /// Codes of a quantiser, `bytes` for each row.
    pub(crate) fn of_quantizer(bytes: usize, id: HasherId, data: impl Into<Bytes>) -> Self {
        Self { quantized: true, ..Self::new(8 * bytes, id, data) }
    }

    /// Other codes of the same model, without factors.
    pub(crate) fn with_data(&self, data: Bytes) -> Self {
        Self { quantized: self.quantized, ..Self::new(self.bits, self.hasher, data) }
    }

    /// Wraps packed codes of `bits` bits each, in the layout above, as codes of `hasher`.
    ///
    /// ```
    /// use frosh::{Codes, HasherId};
    /// let codes = Codes::from_packed(HasherId::foreign(7), 16, vec![1, 0, 3, 0, 0, 128])?;
    /// assert_eq!((codes.len(), codes.row(2)), (3, &[0, 128][..]));
    /// assert!(Codes::from_packed(HasherId::foreign(7), 12, vec![0, 128]).is_err()); // bit 15 of 12
    /// # Ok::<(), frosh::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if `bits` is not from 1 to 2^24, if `data` is not a whole number of rows, or if a bit past the last one is
    /// set.
    pub fn from_packed(hasher: HasherId, bits: usize, data: Vec<u8>) -> Result<Self> {
        if bits == 0 || bits > MAX_DIM {
            return Err(Error::setting("bits", bits, format!("a code has from 1 to {MAX_DIM}")));
        }
        let bytes = bits.div_ceil(8);
        if !data.len().is_multiple_of(bytes) {
            return Err(Error::Ragged { length: data.len(), dim: bytes });
        }
        let spare = 8 * bytes - bits;
        let full = |row: &[u8]| row[bytes - 1].leading_zeros() < spare as u32;
        if spare > 0 && data.chunks_exact(bytes).any(full) {
            return Err(Error::setting("bits", bits, "some code has a bit set past the last one"));
        }
        Ok(Self::new(bits, hasher, data))
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.data.len() / self.bytes_per_row()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Bits per code.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// Bytes per code: ceil(bits / 8).
    pub fn bytes_per_row(&self) -> usize {
        self.bits.div_ceil(8)
    }

    /// Whether the rows have factors, which [`Ranking::Estimated`] needs.
    pub fn has_factors(&self) -> bool {
        self.factors.is_some()
    }

    /// Whether the codes are those of a [`Quantizer`](crate::Quantizer), and not sign bits.
    pub fn is_quantized(&self) -> bool {
        self.quantized
    }

    /// Bytes stored per row: the code and its factors.
    pub fn stored_bytes_per_row(&self) -> usize {
        self.bytes_per_row() + self.factors.as_ref().map_or(0, |factors| factors.bytes)
    }

    /// The id of the model that made the codes.
    pub fn hasher(&self) -> HasherId {
        self.hasher
    }

    /// The bytes of all codes, row after row, without factors.
    pub fn as_bytes(&self) -> &[u8] {
        &self.data
    }

    /// The code of row `i`.
    ///
    /// # Panics
    ///
    /// Panics if `i` is not below the number of rows.
    pub fn row(&self, i: usize) -> &[u8] {
        // The slice below does not check this: for a huge `i` the product wraps and may address another row.
        assert!(i < self.len(), "row {i} of {} codes", self.len());
        &self.data[i * self.bytes_per_row()..(i + 1) * self.bytes_per_row()]
    }

    /// Bit `k` of row `i`.
    ///
    /// # Panics
    ///
    /// Panics if `i` is not below the number of rows, or `k` not below the number of bits.
    pub fn bit(&self, i: usize, k: usize) -> bool {
        assert!(k < self.bits, "bit {k} of a code of {} bits", self.bits);
        self.row(i)[k / 8] >> (k % 8) & 1 == 1
    }

    /// Sets all bits of row `i` to 0. Its factors stay as they are.
    ///
    /// # Panics
    ///
    /// If there is no row `i`.
    pub fn clear_row(&mut self, i: usize) {
        assert!(i < self.len(), "row {i} of {} codes", self.len());
        let bytes = self.bytes_per_row();
        self.cell_order = CellOrderCache::default();
        self.data.to_mut()[i * bytes..(i + 1) * bytes].fill(0);
    }

    /// Appends the rows of `more`.
    ///
    /// # Errors
    ///
    /// Fails if `more` is of another model, if only one of the two has factors, or if their factors differ in size. On
    /// failure nothing is appended.
    pub fn append(&mut self, more: &Codes) -> Result<()> {
        self.check_same_hasher(more)?;
        match (&mut self.factors, &more.factors) {
            (None, None) => {}
            (Some(factors), Some(more)) if factors.bytes == more.bytes => {
                factors.data.to_mut().extend_from_slice(&more.data);
            }
            _ => {
                let advice = "append codes that both have the same factors, or both have none";
                return Err(crate::hasher::estimator::missing("one of two sets of codes", advice));
            }
        }
        self.cell_order = CellOrderCache::default();
        self.data.to_mut().extend_from_slice(&more.data);
        Ok(())
    }

    /// Hamming distance between row `i` of these codes and row `j` of `other`.
    ///
    /// # Errors
    ///
    /// Fails if `other` is of another model.
    ///
    /// # Panics
    ///
    /// Panics if `i` or `j` is not below the number of rows of its codes.
    pub fn distance(&self, i: usize, other: &Codes, j: usize) -> Result<u32> {
        self.check_same_hasher(other)?;
        self.check_bits()?;
        Ok(distance(self.row(i), other.row(j)))
    }

    /// Finds the `k` nearest rows for each query: [`Codes::search`] with default options.
    ///
    /// # Errors
    ///
    /// Fails if the queries are of another model.
    pub fn nearest(&self, queries: &impl QuerySet, k: usize) -> Result<Vec<Vec<Hit>>> {
        self.search(queries, &Search::nearest(k))
    }

    /// Searches these codes. Returns one list of hits for each query, sorted by distance, then by row number.
    ///
    /// ```
    /// # use frosh::{Config, IdSet, Rows, Search, Sketcher};
    /// # let rows: Vec<f32> = (0..3200).map(|i| ((i * 7919) % 113) as f32).collect();
    /// # let mut sketcher = Sketcher::new(Config::new(32).sketch_rows(32))?;
    /// # sketcher.push(Rows::new(&rows, 32)?)?;
    /// # let codes = sketcher.finish().hasher(16)?.encode(Rows::new(&rows, 32)?)?;
    /// let even: IdSet = (0..100).step_by(2).collect();
    /// let hits = codes.search(&codes, &Search::nearest(5).filter(&even))?;
    /// assert!(hits.iter().all(|list| list.len() == 5 && list.iter().all(|hit| hit.id % 2 == 0)));
    /// # Ok::<(), frosh::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the queries are of another model, if the ranking needs projections or factors that the queries or codes do
    /// not have, if a radius is combined with a ranking other than Hamming, or if re-ranking is requested: codes have no
    /// vectors.
    pub fn search(&self, queries: &impl QuerySet, search: &Search<'_>) -> Result<Vec<Vec<Hit>>> {
        self.check_same_hasher(queries.query_codes())?;
        search.check_no_rerank()?;
        search.check_probe(self.quantized)?;
        let (projected, pool) = (queries.projected(), Pool::current());
        let factors = self.has_factors() || self.quantized;
        match (search.ranking_of(projected.map(Queries::ranking), factors)?, projected) {
            (Ranking::Hamming, _) if self.quantized => Err(self.no_bits()),
            (Ranking::Hamming, _) | (_, None) => {
                Ok(self.hamming(&pool, queries.query_codes(), search))
            }
            (ranking, Some(queries)) => self.ranked(&pool, queries, ranking, search),
        }
    }

    /// Searches by Hamming distance. The caller has checked that the queries are of the same model.
    fn hamming(&self, pool: &Pool, queries: &Codes, search: &Search<'_>) -> Vec<Vec<Hit>> {
        let Search { k, filter: allowed, .. } = *search;
        let (table, limit) = (self.table(), search.limit());
        let found = match (allowed, limit) {
            (None, u32::MAX) if !search.scan_only => adaptive::nearest(pool, self, queries, k),
            _ => Scan { table, queries: queries.table(), k, limit, allowed }.search(pool),
        };
        let hit = |n: Neighbour| Hit { id: n.id, distance: n.distance.into() };
        found.into_iter().map(|list| list.into_iter().map(hit).collect()).collect()
    }

    /// The error for Hamming distances between codes of a quantiser.
    fn no_bits(&self) -> Error {
        Error::Ranking {
            ranking: Ranking::Hamming.as_str(),
            needs: "sign bits, and these are codes of a quantiser",
            advice: "make the queries with Quantizer::queries, and use the estimated ranking",
        }
    }

    /// Fails if the codes are not sign bits.
    pub(crate) fn check_bits(&self) -> Result<()> {
        if self.quantized { Err(self.no_bits()) } else { Ok(()) }
    }

    /// The codes as a table of byte rows.
    pub(crate) fn table(&self) -> Table<'_> {
        Table::new(&self.data, self.bytes_per_row())
    }

    pub(crate) fn check_same_hasher(&self, other: &Codes) -> Result<()> {
        if self.hasher == other.hasher
            && self.bits == other.bits
            && self.quantized == other.quantized
        {
            return Ok(());
        }
        Err(Error::OtherHasher { left: self.hasher.to_string(), right: other.hasher.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn codes(bits: usize, id: u128, data: Vec<u8>) -> Codes {
        Codes::new(bits, HasherId(id), data)
    }

    proptest! {
        #[test]
        fn distances_count_the_bits_that_differ(
            (bits, data) in (1usize..200).prop_flat_map(|bits| {
                let bytes = bits.div_ceil(8);
                (Just(bits), prop::collection::vec(any::<u8>(), bytes * 6))
            }),
        ) {
            let mut data = data;
            for row in data.chunks_exact_mut(bits.div_ceil(8)) {
                if bits % 8 != 0 {
                    *row.last_mut().unwrap() &= (1 << (bits % 8)) - 1;
                }
            }
            let c = codes(bits, 1, data);
            for i in 0..6 {
                for j in 0..6 {
                    let naive = (0..bits).filter(|k| c.bit(i, *k) != c.bit(j, *k)).count();
                    prop_assert_eq!(c.distance(i, &c, j).unwrap() as usize, naive);
                }
            }
            let hits = c.nearest(&c, 4).unwrap();
            for (i, hits) in hits.iter().enumerate() {
                let mut all: Vec<(u32, u64)> =
                    (0..6).map(|j| (c.distance(i, &c, j).unwrap(), j as u64)).collect();
                all.sort_unstable();
                let got: Vec<_> = hits.iter().map(|h| (h.distance as u32, h.id)).collect();
                prop_assert_eq!(&got[..], &all[..4]);
            }
        }
    }

    #[test]
    fn promise_8_codes_of_two_hashers_cannot_be_compared() {
        let (a, b) = (codes(8, 1, vec![0]), codes(8, 2, vec![0]));
        assert!(matches!(a.distance(0, &b, 0), Err(Error::OtherHasher { .. })));
        assert!(matches!(a.nearest(&b, 1), Err(Error::OtherHasher { .. })));
        assert!(matches!(a.clone().append(&b), Err(Error::OtherHasher { .. })));
        assert_eq!(a.nearest(&a, 5).unwrap()[0].len(), 1);
    }

    #[test]
    fn codes_of_no_bits_or_far_too_many_are_refused() {
        let make = |bits, bytes| Codes::from_packed(HasherId(1), bits, vec![0; bytes]);
        for (bits, bytes) in [(0, 0), (0, 8), (usize::MAX, 0), (MAX_DIM + 1, 0)] {
            let refused = make(bits, bytes).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("bits = {bits} ")), "{refused}");
        }
        let longest = make(MAX_DIM, MAX_DIM / 8).unwrap();
        assert_eq!((longest.len(), longest.bits()), (1, MAX_DIM));
        assert!(matches!(make(MAX_DIM, 1), Err(Error::Ragged { .. })));
    }

    #[test]
    fn rows_and_bits_out_of_range_panic() {
        let some = codes(64, 1, (0..16).collect());
        assert!(some.bit(1, 3) && !some.bit(0, 63));
        let panics =
            |call: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err();
        // In 64-bit arithmetic 8 * 2^61 wraps to 0.
        for i in [2, usize::MAX, 1 << (usize::BITS - 3)] {
            assert!(panics(&|| drop(some.row(i).to_vec())), "row {i}");
            assert!(panics(&|| drop(some.distance(0, &some, i))), "distance to row {i}");
        }
        assert!(panics(&|| drop(some.bit(0, 64).to_string())));
    }

    #[test]
    fn searches_without_rows_or_queries_return_empty_lists() {
        let (some, none) = (codes(64, 1, (0..80).collect()), codes(64, 1, Vec::new()));
        assert_eq!(some.nearest(&some, 0).unwrap(), vec![Vec::new(); 10]);
        assert_eq!(none.nearest(&some, 3).unwrap(), vec![Vec::new(); 10]);
        assert!(some.nearest(&none, 3).unwrap().is_empty());
        assert!(some.search(&none, &Search::within(3)).unwrap().is_empty());
    }
}
