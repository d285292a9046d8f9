//! Writes the arrays of a new segment, row after row, and sorts its rows by id at the end.

use super::Layout;
use super::column::{Column, Finished, Form};
use super::manifest::{Checksums, SegmentFacts};
use super::names::NameWriter;
use super::segment::{Ids, name};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Writes a segment.
pub(super) struct SegmentWriter {
    folder: PathBuf,
    number: u64,
    codes: Column,
    factors: Option<Column>,
    vectors: Option<Column>,
    names: Option<NameWriter>,
    ids: IdWriter,
}

/// Writes ids. No file is created while the ids are consecutive.
enum IdWriter {
    Consecutive { first: u64, rows: u64 },
    Stored { column: Box<Column>, last: u64, ascending: bool, rows: u64 },
}

/// A batch of rows to append: ids, names, codes, factors and vectors, each row after row.
#[derive(Clone, Copy)]
pub(super) struct NewPart<'a> {
    pub(super) ids: &'a [u64],
    /// Empty if the rows have no names.
    pub(super) names: &'a [&'a str],
    pub(super) codes: &'a [u8],
    pub(super) factors: &'a [u8],
    pub(super) vectors: &'a [u8],
}

impl SegmentWriter {
    pub(super) fn create(folder: &Path, number: u64, layout: &Layout) -> Result<Self> {
        let path = |form| folder.join(name(number, form));
        let column = |form| Column::create(path(form), form);
        Ok(Self {
            folder: folder.to_owned(),
            number,
            codes: column(layout.codes())?,
            factors: layout.factors().map(column).transpose()?,
            vectors: layout.vectors().map(column).transpose()?,
            names: layout.names.then(|| NameWriter::create(path)).transpose()?,
            ids: IdWriter::Consecutive { first: 0, rows: 0 },
        })
    }

    pub(super) fn rows(&self) -> u64 {
        match &self.ids {
            IdWriter::Consecutive { rows, .. } | IdWriter::Stored { rows, .. } => *rows,
        }
    }

    pub(super) fn push(&mut self, part: NewPart<'_>) -> Result<()> {
        self.codes.write(part.codes)?;
        if let Some(column) = &mut self.factors {
            column.write(part.factors)?;
        }
        if let Some(column) = &mut self.vectors {
            column.write(part.vectors)?;
        }
        if let Some(names) = &mut self.names {
            part.names.iter().try_for_each(|name| names.push(name))?;
        }
        part.ids.iter().try_for_each(|id| self.push_id(*id))
    }

    fn push_id(&mut self, id: u64) -> Result<()> {
        match &mut self.ids {
            IdWriter::Consecutive { first, rows: rows @ 0 } => {
                (*first, *rows) = (id, 1);
            }
            IdWriter::Consecutive { first, rows } if first.checked_add(*rows) == Some(id) => {
                *rows += 1
            }
            IdWriter::Consecutive { first, rows } => {
                // The ids are no longer consecutive: create the file and write the ids so far.
                let form = Form::ids();
                let path = self.folder.join(name(self.number, form));
                let column = Column::create(path, form)?;
                let mut column = Box::new(column);
                for row in 0..*rows {
                    column.write(&(*first + row).to_le_bytes())?;
                }
                let last = *first + (*rows - 1);
                self.ids = IdWriter::Stored { column, last, ascending: true, rows: *rows };
                return self.push_id(id);
            }
            IdWriter::Stored { column, last, ascending, rows } => {
                *ascending &= id > *last;
                *last = id;
                *rows += 1;
                column.write(&id.to_le_bytes())?;
            }
        }
        Ok(())
    }

    /// Completes the files. Sorts the rows by id if they came in another order.
    pub(super) fn finish(self) -> Result<SegmentFacts> {
        let rows = self.rows();
        let (first_id, id_column, order) = match self.ids {
            IdWriter::Consecutive { first, .. } => (Some(first), None, None),
            IdWriter::Stored { column, ascending: true, .. } => (None, Some(*column), None),
            IdWriter::Stored { column, .. } => {
                let ids_path = column.path().to_owned();
                let ids = Ids::Stored(column.read_back()?);
                let mut order: Vec<(u64, usize)> =
                    (0..ids.len()).map(|row| (ids.of(row), row)).collect();
                order.sort_unstable();
                if let Some(pair) = order.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                    return Err(Error::DuplicateId { id: pair[0].0 });
                }
                let mut column = Column::create(ids_path, Form::ids())?;
                order.iter().try_for_each(|(id, _)| column.write(&id.to_le_bytes()))?;
                (None, Some(column), Some(order))
            }
        };
        // The writer numbers rows with names, so that their ids ascend.
        debug_assert!(order.is_none() || self.names.is_none());
        let finish = |column: Column| match &order {
            None => column.finish(),
            Some(order) => reordered(column, order),
        };
        let codes = finish(self.codes)?;
        let factors = self.factors.map(finish).transpose()?;
        let vectors = self.vectors.map(finish).transpose()?;
        let ids = id_column.map(Column::finish).transpose()?;
        let names = self.names.map(NameWriter::finish).transpose()?;
        // In the order of `Layout::arrays`.
        let all = [
            Some(&codes),
            factors.as_ref(),
            vectors.as_ref(),
            ids.as_ref(),
            names.as_ref().map(|names| &names.names),
            names.as_ref().map(|names| &names.ends),
            names.as_ref().map(|names| &names.lookup),
        ];
        let blocks = if all.iter().flatten().any(|array| array.blocks.len() > 1) {
            let form = Form::checksums();
            let mut column = Column::create(self.folder.join(name(self.number, form)), form)?;
            for sum in all.iter().flatten().flat_map(|array| &array.blocks) {
                column.write(&sum.to_le_bytes())?;
            }
            Some(column.finish()?.whole)
        } else {
            None
        };
        let name_bytes = names.as_ref().map(|names| names.bytes);
        let [names, name_ends, name_lookup] = match names {
            Some(names) => [names.names, names.ends, names.lookup].map(|array| Some(array.whole)),
            None => [None, None, None],
        };
        let checksums = Checksums {
            names,
            name_ends,
            name_lookup,
            codes: codes.whole,
            factors: factors.map(|array| array.whole),
            vectors: vectors.map(|array| array.whole),
            ids: ids.map(|array| array.whole),
            blocks,
        };
        let number = self.number;
        let (model, settled, removed) = (None, false, None);
        Ok(SegmentFacts { number, rows, first_id, model, settled, name_bytes, checksums, removed })
    }
}

/// Rewrites a column with its rows in another order.
fn reordered(column: Column, order: &[(u64, usize)]) -> Result<Finished> {
    let (path, form) = (column.path().to_owned(), column.form());
    let old = column.read_back()?;
    let mut column = Column::create(path, form)?;
    let width = form.width();
    order.iter().try_for_each(|(_, row)| column.write(&old[row * width..(row + 1) * width]))?;
    column.finish()
}
