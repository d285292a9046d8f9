//! `frosh_distance`: from the code of a row to a query vector.
//!
//! A query has the same vector and the same model for many codes. So codes of a batch are taken in runs of rows whose
//! vector and model are the same, and each run is one search for all of its rows.

use crate::models::{self, DEFAULT_EFFORT};
use crate::scalars::{Bytes, same_model};
use crate::vectors::{self, Bad, Sink};
use datafusion::arrow::array::{Array, ArrayRef, Float64Builder};
use datafusion::arrow::buffer::Buffer;
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::logical_expr::ColumnarValue;
use frosh::{Element, Model, Queries, Ranking, Rows, Search};
use std::ops::Range;
use std::sync::Arc;

const NAME: &str = "frosh_distance";

/// Distances of codes to vectors; null where one of the three arguments is null.
pub(crate) fn of(args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let (codes, models) = (Bytes::new(NAME, &args[0])?, Bytes::new(NAME, &args[2])?);
    let codes: Vec<Option<&[u8]>> = codes.iter(NAME, rows)?.collect();
    let models: Vec<Option<&[u8]>> = models.iter(NAME, rows)?.collect();
    let vectors = Vectors::new(&args[1])?;
    let mut out = Float64Builder::with_capacity(rows);
    let mut first = 0;
    while first < rows {
        let same =
            |row: &usize| same_model(models[first], models[*row]) && vectors.same(first, *row);
        let end = first + (first..rows).take_while(same).count();
        match models[first] {
            Some(model) if !vectors.is_null(first) => {
                let model = models::read(NAME, model, DEFAULT_EFFORT)?;
                let query = vectors.query(&model, first)?;
                for distance in distances(&model, &query, &codes[first..end], first)? {
                    out.append_option(distance);
                }
            }
            _ => (first..end).for_each(|_| out.append_null()),
        }
        first = end;
    }
    Ok(Arc::new(out.finish()))
}

/// The distance of each code to the only query.
fn distances(
    model: &Model,
    query: &Queries,
    codes: &[Option<&[u8]>],
    first: usize,
) -> Result<Vec<Option<f64>>> {
    let bytes = model.bytes_per_row();
    let mut packed = Vec::with_capacity(codes.len() * bytes);
    let mut places = Vec::with_capacity(codes.len());
    for (i, code) in codes.iter().enumerate() {
        let Some(code) = code else { continue };
        if code.len() != bytes {
            return exec_err!(
                "{NAME}: row {} of its batch: a code of {} bytes, and codes of the model have {bytes}",
                first + i,
                code.len()
            );
        }
        packed.extend_from_slice(code);
        places.push(i);
    }
    let failed = |error: frosh::Error| exec_datafusion_err!("{NAME}: {error}");
    let base = model.codes_from_packed(packed).map_err(failed)?;
    // A column of codes has no factors: of sign bits, the asymmetric distance is the best that they give.
    let ranking = match model {
        Model::Quantizer(_) => Ranking::Estimated,
        _ => Ranking::Asymmetric,
    };
    let all = Search::nearest(base.len()).ranking(ranking);
    let hits = base.search(query, &all).map_err(failed)?;
    let mut found = vec![None; codes.len()];
    for hit in hits.iter().flatten() {
        found[places[hit.id as usize]] = Some(hit.distance);
    }
    Ok(found)
}

/// The column of vectors, or one vector for all rows.
struct Vectors {
    array: ArrayRef,
    one: bool,
    /// The bytes of all values, and where those of each row are: rows are compared by them.
    bytes: Buffer,
    rows: Vec<Range<usize>>,
    /// A null among the values has bytes too, which mean nothing.
    has_null_values: bool,
}

impl Vectors {
    fn new(value: &ColumnarValue) -> Result<Self> {
        let (array, one) = match value {
            ColumnarValue::Array(array) => (Arc::clone(array), false),
            ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
        };
        let (values, place) = vectors::places(&array)?;
        let (data, size) = (values.to_data(), values.data_type().primitive_width().unwrap_or(1));
        let at = |i: usize| (data.offset() + i) * size;
        let rows = (0..array.len()).map(|row| at(place(row).start)..at(place(row).end)).collect();
        let (bytes, has_null_values) = (data.buffers()[0].clone(), values.null_count() > 0);
        drop(place);
        Ok(Self { array, one, bytes, rows, has_null_values })
    }

    fn place(&self, row: usize) -> usize {
        if self.one { 0 } else { row }
    }

    fn is_null(&self, row: usize) -> bool {
        self.array.is_null(self.place(row))
    }

    /// Whether two rows are known to have the same vector.
    fn same(&self, one: usize, other: usize) -> bool {
        let (one, other) = (self.place(one), self.place(other));
        let bytes = |row: usize| &self.bytes.as_slice()[self.rows[row].clone()];
        one == other
            || !self.has_null_values
                && self.array.is_null(one) == self.array.is_null(other)
                && bytes(one) == bytes(other)
    }

    /// The vector of a row, prepared for a search.
    fn query(&self, model: &Model, row: usize) -> Result<Queries> {
        let mut sink = Query { model, row, made: None };
        let vector = self.array.slice(self.place(row), 1);
        vectors::feed(&vector, &mut Some(model.dim()), &mut sink)?;
        sink.made.ok_or_else(|| exec_datafusion_err!("{NAME}: row {row} of its batch: no vector"))
    }
}

/// Makes the query of one vector.
struct Query<'a> {
    model: &'a Model,
    /// Number of the row in the batch, for errors.
    row: usize,
    made: Option<Queries>,
}

impl Sink for Query<'_> {
    fn take<T: Element>(&mut self, _: usize, rows: Rows<'_, T>) -> Result<Option<(usize, Bad)>> {
        match self.model.queries(rows) {
            Ok(queries) => {
                self.made = Some(queries);
                Ok(None)
            }
            Err(
                error @ (frosh::Error::NotFinite { row, .. } | frosh::Error::TooLarge { row, .. }),
            ) => Ok(Some((row, Bad::Value(error)))),
            Err(error) => exec_err!("{NAME}: {error}"),
        }
    }

    fn bad(&mut self, _: usize, why: Bad) -> Result<()> {
        exec_err!("{NAME}: row {} of its batch, from 0: {why}", self.row)
    }
}
