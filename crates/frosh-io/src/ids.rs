//! Ids and class labels of rows: whole numbers or text, from a column beside the vectors or from a file of their own.
//!
//! | source | ids |
//! |---|---|
//! | Parquet, Arrow | a column of integers or text, also UUIDs; within structures its path, with dots between the names |
//! | JSON Lines | a field that is a whole number or text, or its path |
//! | CSV, TSV | a column, by its name or its position from 0 |
//! | word vectors | the words, as the column `word` |
//! | `.npy`, idx, text (files of ids only) | integers, NumPy's fixed-width text (`<U12`, `\|S12`), one id per line |
//!
//! Parquet, Arrow, JSON and `.npy` tell whether an id is a number or text. In CSV and plain text all is text: ids are whole
//! numbers if the first one is, unless [`IdRule`] says otherwise. All ids of a stream are of one type.
//!
//! Text formats give ids in the same pass as the vectors, so that they can be streams. In Parquet and Arrow, columns
//! are stored apart, so that a second reader goes through the column of ids in step with the vectors (`IdSource`): it
//! reads nothing twice. Memory is that of a batch. Null ids, fractions and negative numbers are refused with file and
//! row; those of rows that are left out are not looked at.

mod file;
mod parse;

pub(crate) use file::choose_one;
pub use file::read_ids;
pub(crate) use parse::{IdSink, Raw};

use crate::Values;
use crate::error::Fault;
use crate::source::{Cutting, Shape, Source};
use std::ops::Range;

/// The longest id that is text, in bytes: the same as the longest name in an index of the `frosh` library.
pub(crate) const MAX_TEXT: usize = 1 << 16;

/// Whether ids are whole numbers or text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdType {
    /// Whole numbers from 0 to 2^64 - 1.
    Number,
    /// Text.
    Text,
}

impl std::fmt::Display for IdType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            IdType::Number => "whole numbers",
            IdType::Text => "text",
        })
    }
}

/// How ids are taken from a file; by default as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdRule {
    /// Convert all ids to this type: numbers to their decimal text, or text to the number that it is.
    pub convert: Option<IdType>,
    /// The type of ids in CSV and plain text, which do not tell; by default whole numbers if the first id is one.
    pub untyped: Option<IdType>,
}

/// The ids of some rows.
///
/// ```
/// use frosh_io::{Ids, Options, Vectors};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("a.jsonl");
/// std::fs::write(&path, r#"{"id": "cat", "emb": [1, 2]}
/// {"id": "dog", "emb": [3, 4]}"#)?;
/// let options = Options { id_column: Some("id".into()), ..Options::default() };
/// let vectors = Vectors::open(&[&path], &options)?;
/// let mut batches = vectors.batches();
/// let batch = batches.next()?.expect("two rows");
/// let Some(Ids::Names(names)) = batch.ids() else { panic!("text") };
/// assert_eq!(names.iter().collect::<Vec<_>>(), ["cat", "dog"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Whole numbers.
    Numbers(Vec<u64>),
    /// Text.
    Names(Names),
}

impl Ids {
    /// Number of ids.
    pub fn len(&self) -> usize {
        match self {
            Ids::Numbers(numbers) => numbers.len(),
            Ids::Names(names) => names.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they are numbers or text.
    pub fn id_type(&self) -> IdType {
        match self {
            Ids::Numbers(_) => IdType::Number,
            Ids::Names(_) => IdType::Text,
        }
    }

    /// An id as text.
    pub fn text(&self, i: usize) -> String {
        match self {
            Ids::Numbers(numbers) => numbers[i].to_string(),
            Ids::Names(names) => names.get(i).to_owned(),
        }
    }

    /// Adds ids of the same type. Returns false, and adds nothing, if they are of the other type.
    pub fn append(&mut self, more: &Ids) -> bool {
        match (self, more) {
            (Ids::Numbers(all), Ids::Numbers(more)) => all.extend_from_slice(more),
            (Ids::Names(all), Ids::Names(more)) => more.iter().for_each(|name| all.push(name)),
            _ => return false,
        }
        true
    }

    /// Removes the ids of rows, whose numbers ascend.
    pub(crate) fn remove_rows(&mut self, rows: &[usize]) {
        let mut removed = rows.iter().copied().peekable();
        match self {
            Ids::Numbers(numbers) => {
                let mut row = 0;
                numbers.retain(|_| {
                    row += 1;
                    removed.next_if_eq(&(row - 1)).is_none()
                });
            }
            Ids::Names(names) => {
                let kept = names.iter().enumerate();
                let kept = kept.filter(|(row, _)| removed.next_if_eq(row).is_none());
                *names = kept.map(|(_, name)| name).collect();
            }
        }
    }
}

/// A list of texts, one after the other in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    text: String,
    ends: Vec<usize>,
}

impl Names {
    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A text.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn get(&self, i: usize) -> &str {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.text[start..self.ends[i]]
    }

    /// Adds a text.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// All texts, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i))
    }
}

impl<'a> FromIterator<&'a str> for Names {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut all = Self::default();
        names.into_iter().for_each(|name| all.push(name));
        all
    }
}

/// Reads the ids of the rows of one file.
pub(crate) trait IdSource: Send {
    /// Gives the ids of at most `most` rows to `sink`, from row `row` of the file on. Returns how many; fewer means the
    /// end. `row` is never before the end of the last call.
    fn read(&mut self, row: u64, most: usize, sink: &mut IdSink) -> Result<usize, Fault>;

    /// The type of all ids, if the file's schema gives it.
    fn id_type(&self) -> Option<IdType> {
        None
    }
}

/// A source of vectors with a second reader for the ids of its rows.
pub(crate) struct WithIds {
    pub(crate) source: Box<dyn Source>,
    pub(crate) ids: Box<dyn IdSource>,
}

impl Source for WithIds {
    fn shape(&self) -> Shape {
        self.source.shape()
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        self.source.read(limit, values)
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        self.source.skip(rows)
    }

    fn cutting(&self) -> Option<Cutting> {
        self.source.cutting()
    }

    fn snap(&mut self, row: u64) -> u64 {
        self.source.snap(row)
    }

    fn select(&mut self, rows: Range<u64>) -> Result<(), Fault> {
        self.source.select(rows)
    }

    fn take_left_out(&mut self) -> Vec<Range<u64>> {
        self.source.take_left_out()
    }

    fn ids(&mut self) -> Option<&mut dyn IdSource> {
        Some(&mut *self.ids)
    }
}

#[cfg(test)]
mod tests;
