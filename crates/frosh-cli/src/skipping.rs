//! Rows that cannot be used: left out where that was asked for, counted, and listed.

use crate::args::same_place;
use crate::output::count;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use frosh::AtomicFile;
use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Row numbers that a report names.
const NAMED: usize = 5;

/// What to do with rows that cannot be used.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Input")]
pub(crate) struct Skipping {
    /// Leave out rows with NaN, infinity or nulls instead of stopping at them
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Write the numbers of the rows that were left out to this file: one a line, from 0
    #[arg(long, value_name = "FILE", requires = "skip_bad")]
    pub(crate) skipped: Option<PathBuf>,
}

/// The rows that were left out.
pub(crate) struct SkippedRows {
    count: u64,
    /// The first of them.
    named: Vec<u64>,
    /// The number after the last of them.
    end: u64,
    list: Option<(PathBuf, AtomicFile)>,
}

impl Skipping {
    /// Begins the list. It must be none of the files `others`, which the verb reads or writes.
    pub(crate) fn start<'a>(
        &self,
        others: impl IntoIterator<Item = &'a Path>,
    ) -> Result<SkippedRows> {
        let list = match &self.skipped {
            None => None,
            Some(path) => {
                if let Some(other) = others.into_iter().find(|other| same_place(path, other)) {
                    bail!(
                        "--skipped would overwrite {}, which is another file of this command: give it another name",
                        other.display()
                    );
                }
                Some((path.clone(), AtomicFile::begin(path)?))
            }
        };
        Ok(SkippedRows { count: 0, named: Vec::new(), end: 0, list })
    }
}

impl SkippedRows {
    /// Adds rows, which come after those that were added before.
    pub(crate) fn add(&mut self, rows: &[Range<u64>]) -> Result<()> {
        self.count += count_of(rows);
        self.end = rows.last().map_or(self.end, |last| last.end);
        let numbers = || rows.iter().cloned().flatten();
        self.named.extend(numbers().take(NAMED - self.named.len()));
        if let Some((path, file)) = self.list.as_ref().filter(|_| !rows.is_empty()) {
            let mut text = BufWriter::new(file.file());
            let mut written = numbers().try_for_each(|row| writeln!(text, "{row}"));
            written = written.and_then(|()| text.flush());
            written.with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// The number after the last row that was left out, or 0.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Completes the list.
    pub(crate) fn finish(self) -> Result<LeftOut> {
        let Self { count, named, list, .. } = self;
        let list = match list {
            None => None,
            Some((path, file)) => {
                file.commit()?;
                Some(path)
            }
        };
        Ok(LeftOut { count, named, list })
    }
}

/// How many numbers there are.
pub(crate) fn count_of(rows: &[Range<u64>]) -> u64 {
    rows.iter().map(|rows| rows.end - rows.start).sum()
}

/// How many rows were left out, and where they are listed.
pub(crate) struct LeftOut {
    pub(crate) count: u64,
    named: Vec<u64>,
    list: Option<PathBuf>,
}

impl LeftOut {
    /// A line for a report; empty if no row was left out. `what` says what became of them, such as ", left out".
    pub(crate) fn line(&self, what: &str) -> String {
        if self.count == 0 {
            return String::new();
        }
        let named: Vec<String> = self.named.iter().map(ToString::to_string).collect();
        let more = self.count - named.len() as u64;
        let rest = if more > 0 { format!(" and {} more", count(more)) } else { String::new() };
        let list = match &self.list {
            Some(path) => format!(", listed in {}", path.display()),
            None if more > 0 => ", which --skipped FILE lists".into(),
            None => String::new(),
        };
        let rows = if self.count == 1 { "row" } else { "rows" };
        format!(
            "{} {rows} could not be used{what}: {rows} {}{rest}{list}\n",
            count(self.count),
            named.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_first_rows() {
        let left_out = |rows: &[u64]| {
            let mut skipped = Skipping::default().start([]).unwrap();
            rows.iter()
                .for_each(|row| skipped.add(std::slice::from_ref(&(*row..row + 1))).unwrap());
            skipped.finish().unwrap().line(", left out")
        };
        assert_eq!(left_out(&[]), "");
        assert_eq!(left_out(&[7]), "1 row could not be used, left out: row 7\n");
        assert_eq!(
            left_out(&[1, 2, 3, 5, 8, 13, 21]),
            "7 rows could not be used, left out: rows 1, 2, 3, 5, 8 and 2 more, which --skipped FILE lists\n"
        );
    }
}
