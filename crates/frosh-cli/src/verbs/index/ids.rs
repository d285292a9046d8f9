//! Ids of the rows that are added: from files of their own, or from a column of the data.

use anyhow::{Result, anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{ArgGroup, Args};
use frosh::{Element, Index, NewRows, Rows};
use frosh_io::{IdRule, IdType, Ids, RowConsumer, Vectors, read_ids};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Rows that a message names.
const NAMED: usize = 2;

/// Where ids come from.
#[derive(Args)]
#[command(group = ArgGroup::new("own_ids").multiple(true))]
pub(super) struct IdArgs {
    /// Files of ids, one for each row: one a line, a .npy array of integers or text, or a column (see --id-column) of
    /// Parquet, Arrow, CSV or JSON Lines. Without ids rows are numbered
    #[arg(long, num_args = 1.., value_name = "FILE", group = "own_ids")]
    pub(super) ids: Vec<PathBuf>,
    /// Column of the data with the ids: integers or text (Parquet, Arrow, JSON Lines; CSV and TSV by name or by
    /// position from 0; word for word vectors). With --ids, a column of those files
    #[arg(long, value_name = "NAME", group = "own_ids")]
    pub(super) id_column: Option<String>,
    /// Take all ids as number or text. By default they are as the file has them; in CSV and plain text, numbers if the
    /// first is one, or as those of the index
    #[arg(long, value_name = "TYPE", requires = "own_ids",
          value_parser = PossibleValuesParser::new(["number", "text"]).map(|name| id_type(&name)))]
    pub(super) id_type: Option<IdType>,
}

fn id_type(name: &str) -> IdType {
    if name == "text" { IdType::Text } else { IdType::Number }
}

/// The type of the ids of an index; `None` if it has no rows, and takes both.
pub(super) fn type_of(index: &Index) -> Option<IdType> {
    let kind = if index.has_names() { IdType::Text } else { IdType::Number };
    (index.segments() > 0).then_some(kind)
}

impl IdArgs {
    /// How ids are taken for this index, or for a new one.
    pub(super) fn rule(&self, index: Option<IdType>) -> IdRule {
        IdRule { convert: self.id_type, untyped: index }
    }

    /// The column of the data with the ids.
    pub(super) fn data_column(&self) -> Option<String> {
        self.id_column.clone().filter(|_| self.ids.is_empty())
    }

    /// Ids in files, checked against a number of rows where that is known.
    pub(super) fn read(&self, rule: IdRule, rows: Option<u64>) -> Result<Option<Ids>> {
        let mut all: Option<Ids> = None;
        for file in &self.ids {
            let ids = read_ids(file, self.id_column.as_deref(), rule)?;
            match &mut all {
                None => all = Some(ids),
                Some(all) => {
                    if !all.append(&ids) {
                        bail!(
                            "{}: its ids are {}, and those of {} are {}: take all as text with --id-type text",
                            file.display(),
                            ids.id_type(),
                            self.ids[0].display(),
                            all.id_type()
                        );
                    }
                }
            }
        }
        let got = all.as_ref().map(Ids::len);
        if let Some((got, rows)) = got.zip(rows).filter(|(got, rows)| *got as u64 != *rows) {
            let name = self.ids[0].display();
            bail!("{name}: {got} ids, but the data has {rows} rows: give one id for each row");
        }
        Ok(all)
    }

    /// Says of an id that is there already where it is, and what helps.
    pub(super) fn duplicate(
        &self,
        error: frosh::Error,
        ids: Option<&Ids>,
        vectors: &Vectors,
    ) -> anyhow::Error {
        let id = match &error {
            frosh::Error::DuplicateId { id } => id.to_string(),
            frosh::Error::DuplicateName { name } => name.clone(),
            _ => return error.into(),
        };
        let shown = match &error {
            frosh::Error::DuplicateName { name } => format!("{name:?}"),
            _ => id.clone(),
        };
        let places = match ids {
            Some(ids) => {
                let here = self.ids[0].display();
                let rows = (0..ids.len()).filter(|i| ids.text(*i) == id);
                rows.take(NAMED).map(|row| format!("{here}, row {row}")).collect()
            }
            None => find(vectors, &id),
        };
        match &places[..] {
            [] => error.into(),
            [one] => anyhow!(
                "{one}: id {shown} is there already: give --replace to put the new row in its place"
            ),
            [one, other, ..] => {
                anyhow!("{one}: id {shown} is given to two rows, and ids are unique; also {other}")
            }
        }
    }
}

/// The first places of an id in the column of the data, which is read again for it.
fn find(vectors: &Vectors, id: &str) -> Vec<String> {
    let mut places = Vec::new();
    if vectors.files().iter().any(|file| !file.rereadable) {
        return places;
    }
    let mut batches = vectors.batches();
    // An error now would hide the one that is to be told.
    while let Ok(Some(batch)) = batches.next() {
        let Some(ids) = batch.ids() else { return places };
        for row in (0..ids.len()).filter(|i| ids.text(*i) == id) {
            let (path, number) = batch.place(row);
            places.push(format!("{}, row {number}", path.display()));
            if places.len() == NAMED {
                return places;
            }
        }
    }
    places
}

/// Adds rows under ids of the user.
pub(super) struct AddWithIds<'a, 'w> {
    pub(super) new: &'a mut NewRows<'w>,
    pub(super) ids: &'a Ids,
    /// The ids of these rows.
    pub(super) range: Range<usize>,
}

impl RowConsumer for AddWithIds<'_, '_> {
    type Output = ();

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<()> {
        match self.ids {
            Ids::Numbers(numbers) => self.new.push_with_ids(rows, &numbers[self.range]),
            Ids::Names(names) => {
                let names: Vec<&str> = self.range.map(|i| names.get(i)).collect();
                self.new.push_with_names(rows, &names)
            }
        }
    }
}

/// Ids to remove: from arguments and from a file, of the type that the index has.
pub(super) fn to_remove(
    arguments: &[String],
    file: Option<&Path>,
    column: Option<&str>,
    index: &Index,
) -> Result<Ids> {
    let kind = type_of(index);
    let rule = IdRule { convert: None, untyped: kind };
    let from_file = file.map(|file| read_ids(file, column, rule)).transpose()?;
    let names = match (kind, &from_file) {
        (Some(kind), _) => kind == IdType::Text,
        (None, Some(ids)) => ids.id_type() == IdType::Text,
        (None, None) => arguments.iter().any(|id| id.parse::<u64>().is_err()),
    };
    let mut all = if names {
        Ids::Names(arguments.iter().map(String::as_str).collect())
    } else {
        let number = |id: &String| {
            id.parse().map_err(|_| {
                anyhow!("--ids: {id:?} is no id of this index, which are whole numbers")
            })
        };
        Ids::Numbers(arguments.iter().map(number).collect::<Result<_>>()?)
    };
    if let Some((ids, file)) = from_file.as_ref().zip(file)
        && !all.append(ids)
    {
        let (have, got) = (all.id_type(), ids.id_type());
        bail!("{}: its ids are {got}, and those of the index are {have}", file.display());
    }
    Ok(all)
}
