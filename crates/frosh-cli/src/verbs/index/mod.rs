//! `frosh index`: a folder that rows are added to and removed from, and searched in.

mod add;
mod ids;
mod learner;
mod refresh;
mod search;

use crate::args::Common;
use crate::output::{count, print, print_json, size};
use crate::skipping::LeftOut;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use frosh::{Index, IndexVersion, IndexWriter};
use frosh_io::Ids;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Keep codes in a folder: add, remove and search rows by ids of your own.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh index build model.frosh vectors.npy -o index/
  frosh index add index/ more.npy --ids ids.txt      rows with ids of your own
  frosh index add index/ more.parquet --id-column id
  frosh index remove index/ --ids 17,4711
  frosh index search index/ --queries q.npy -k 10 --json
  frosh index refresh index/ --rows vectors.npy      a new model, if one is due
  frosh index compact index/

Any number of searches may run while one command changes the index; they see it as it was when they began.
A command that is killed changes nothing.")]
pub(crate) struct IndexVerbs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Encode vectors into a new index
    Build(add::Build),
    /// Encode more vectors into an index
    Add(add::Add),
    /// Remove rows by their ids
    Remove(Remove),
    /// Find the nearest rows for query vectors
    Search(search::IndexSearch),
    /// Make a new version of the model, if the data has changed
    Refresh(refresh::Refresh),
    /// Make one part of many, and free the space of removed rows
    Compact(Compact),
    /// Tell what is in an index
    Info(Info),
}

impl IndexVerbs {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        match &self.verb {
            Verb::Build(verb) => verb.run(common),
            Verb::Add(verb) => verb.run(common),
            Verb::Remove(verb) => verb.run(common),
            Verb::Search(verb) => verb.run(common),
            Verb::Refresh(verb) => verb.run(common),
            Verb::Compact(verb) => verb.run(common),
            Verb::Info(verb) => verb.run(common),
        }
    }
}

/// Remove rows by their ids. Ids that are not there are counted and passed over.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh index remove index/ --ids 17,4711
  frosh index remove index/ --ids cat.jpg,dog.jpg
  frosh index remove index/ --ids-file gone.txt")]
struct Remove {
    /// The index
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// Ids to remove
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "ID,...",
        required_unless_present = "ids_file"
    )]
    ids: Vec<String>,
    /// A file of ids to remove: one a line, a .npy array of integers or text, or a column of a table
    #[arg(long, value_name = "FILE")]
    ids_file: Option<PathBuf>,
    /// Column of --ids-file with the ids, where it has several
    #[arg(long, value_name = "NAME", requires = "ids_file")]
    id_column: Option<String>,
}

impl Remove {
    fn run(&self, common: &Common) -> Result<()> {
        if let Some(file) = &self.ids_file {
            check_outside(&self.index, [&**file])?;
        }
        crate::kinds::check_index(&self.index)?;
        let index = Index::open(&self.index)?;
        let file = self.ids_file.as_deref();
        let ids = ids::to_remove(&self.ids, file, self.id_column.as_deref(), &index)?;
        drop(index);
        let mut writer = IndexWriter::open(&self.index)?;
        let (removed, asked) = match ids {
            Ids::Numbers(mut ids) => {
                ids.sort_unstable();
                ids.dedup();
                (writer.remove(&ids)?, ids.len())
            }
            Ids::Names(names) => {
                let mut names: Vec<&str> = names.iter().collect();
                names.sort_unstable();
                names.dedup();
                (writer.remove_names(&names)?, names.len())
            }
        };
        done(self.report(common, removed, asked as u64 - removed, writer.index().len()));
        Ok(())
    }

    fn report(&self, common: &Common, removed: u64, missing: u64, rows: u64) -> Result<()> {
        if common.json {
            return print_json(&json!({"removed": removed, "missing": missing, "rows": rows}));
        }
        if common.quiet {
            return Ok(());
        }
        let mut text = format!(
            "{}: {} rows removed, {} left",
            self.index.display(),
            count(removed),
            count(rows)
        );
        if missing > 0 {
            text += &format!("; {} ids were not there", count(missing));
        }
        print(&(text + "\n"))
    }
}

/// Make one part of many, and free the space of removed rows. Ids stay the same, and so do answers unless versions are
/// folded.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh index compact index/
  frosh index compact index/ --versions 3

An index with several versions of the model keeps a part for each of them, and one for the rows since the last one.
Where there are more versions than --versions, the newest model encodes the rows of the worst ones again, from stored
vectors or from --source. Without them the versions stay.")]
struct Compact {
    /// The index
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// Versions of the model to keep
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    versions: u32,
    #[command(flatten)]
    source: refresh::Source,
    #[command(flatten)]
    reading: crate::args::Reading,
}

impl Compact {
    fn run(&self, common: &Common) -> Result<()> {
        crate::kinds::check_index(&self.index)?;
        let source = self.source.open(&Index::open(&self.index)?, &self.reading, &self.index)?;
        let mut writer = IndexWriter::open(&self.index)?;
        let before = (writer.index().segments(), writer.index().removed());
        let (stored, given) = (writer.index().vectors().is_some(), source.is_some());
        let fold = writer.fold(self.versions as usize);
        let encoded = if fold.rows() > 0 && (stored || given) {
            self.source.finish(fold, source, common)?
        } else {
            0
        };
        writer.compact_to(self.versions as usize)?;
        done(self.report(common, writer.index(), before, encoded));
        Ok(())
    }

    fn report(
        &self,
        common: &Common,
        index: &Index,
        before: (usize, u64),
        encoded: u64,
    ) -> Result<()> {
        let versions = index.versions().len();
        if common.json {
            return print_json(&json!({
                "rows": index.len(), "parts_before": before.0, "removed_before": before.1,
                "parts": index.segments(), "versions": versions, "encoded": encoded,
            }));
        }
        if common.quiet {
            return Ok(());
        }
        let mut text = format!(
            "{}: {} rows, {} parts before and {} now, space of {} removed rows freed\n",
            self.index.display(),
            count(index.len()),
            before.0,
            index.segments(),
            count(before.1)
        );
        if encoded > 0 {
            text += &format!("{} rows of old versions encoded again\n", count(encoded));
        }
        if versions > self.versions as usize {
            text += &format!(
                "{versions} versions of the model stay: give the vectors of their rows (--source) to fold them\n"
            );
        }
        print(&text)
    }
}

/// Tell what is in an index.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh index info index/
  frosh index info index/ --check --json")]
struct Info {
    /// The index
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// Read every file and compare its checksum
    #[arg(long)]
    check: bool,
}

impl Info {
    fn run(&self, common: &Common) -> Result<()> {
        tell(&self.index, self.check, common)
    }
}

/// Tells what is in an index, after reading all of it if `check`.
pub(crate) fn tell(path: &Path, check: bool, common: &Common) -> Result<()> {
    crate::kinds::check_index(path)?;
    let index = Index::open(path)?;
    if check {
        index.check()?;
    }
    let others = index.other_files()?;
    if common.json {
        let mut facts = facts(&index);
        facts["checked"] = json!(check);
        facts["other_files"] = json!(others);
        return print_json(&facts);
    }
    let hasher = index.model();
    let kept = if index.has_factors() { "code and factors" } else { "code" };
    let vectors = index.vectors().map_or(String::new(), |v| format!(", vector as {v}"));
    let mut text = format!("{}\n", path.display());
    for (name, value) in [
        ("kind", "index".into()),
        ("rows", count(index.len())),
        ("removed", count(index.removed())),
        ("parts", index.segments().to_string()),
        ("ids", ids_kind(&index).into()),
        ("bytes a row", format!("{} ({kept}{vectors})", index.bytes_per_row())),
        ("bits", hasher.bits().to_string()),
        ("dim", hasher.dim().to_string()),
        ("metric", hasher.metric().to_string()),
        ("model", hasher.id().to_string()),
        ("versions", versions_text(&index)),
        (
            "learned from",
            index.learned_rows().map_or(String::new(), |n| format!("{} rows", count(n))),
        ),
        ("other files", others_text(&others)),
    ] {
        if value.is_empty() {
            continue;
        }
        text += &format!("  {name:<20}{value}\n");
    }
    if check {
        text += "  checked             every file is as it was written\n";
    }
    if index.segments() > 8 || index.removed() * 4 > index.len() {
        text += "\nSearches are faster after `frosh index compact`.\n";
    }
    print(&text)
}

/// The versions of an index with their rows, oldest first; empty if there is one.
fn versions_text(index: &Index) -> String {
    let versions = index.versions();
    if versions.len() < 2 {
        return String::new();
    }
    let line = |version: &IndexVersion<'_>| {
        let mut text = format!("{} {} rows", version.model.id(), count(version.rows));
        if version.rows_since > 0 {
            text += &format!(", {} of them since it was made", count(version.rows_since));
        }
        if let Some(map) = version.sample_map {
            text += &format!(", MAP {map:.3} on the sample");
        }
        text
    };
    let lines: Vec<String> = versions.iter().map(line).collect();
    lines.join(&format!("\n{:22}", ""))
}

/// What `--json` tells of the versions.
fn versions(index: &Index) -> Value {
    let version = |version: &IndexVersion<'_>| {
        json!({
            "model": version.model.id().to_string(),
            "bits": version.model.bits(),
            "rows": version.rows,
            "rows_since": version.rows_since,
            "sample_map": version.sample_map,
        })
    };
    index.versions().iter().map(version).collect()
}

/// What the ids of an index are.
fn ids_kind(index: &Index) -> &'static str {
    if index.has_names() { "text" } else { "whole numbers" }
}

/// Files in the folder that are not the index's, in a few words.
fn others_text(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => format!("{name}: not of this index"),
        [name, rest @ ..] => format!("{name} and {} more: not of this index", rest.len()),
    }
}

/// What `--json` tells of an index.
fn facts(index: &Index) -> Value {
    json!({
        "kind": "index",
        "rows": index.len(),
        "removed": index.removed(),
        "parts": index.segments(),
        "generation": index.generation(),
        "ids": if index.has_names() { "text" } else { "number" },
        "bits": index.model().bits(),
        "dim": index.model().dim(),
        "metric": index.model().metric().as_str(),
        "model": index.model().id().to_string(),
        "versions": versions(index),
        "learned_rows": index.learned_rows(),
        "bytes_per_row": index.bytes_per_row(),
        "factors": index.has_factors(),
        "vectors": index.vectors().map(|v| v.as_str()),
    })
}

/// What a change that was made is told with. If that fails, the change is made all the same: an exit code of 1
/// would make somebody make it again.
fn done(told: Result<()>) {
    if let Err(error) = told {
        use std::io::Write as _;
        // Standard error may be closed as well.
        let said = format!("done, but this could not be told: {}\n", crate::output::chain(&error));
        let _ = std::io::stderr().write_all(said.as_bytes());
    }
}

/// Refuses inputs that lie in the folder of an index: files there are the index's own, which it removes.
fn check_outside<'a>(index: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let Ok(folder) = index.canonicalize() else { return Ok(()) };
    // What is only linked from there is an input of its own.
    let inside = |input: &Path| {
        let parent = input.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).canonicalize();
        let file = input.canonicalize();
        [parent, file].into_iter().flatten().any(|path| path.starts_with(&folder))
    };
    match inputs.into_iter().find(|input| inside(input)) {
        None => Ok(()),
        Some(input) => bail!(
            "{} is an input, and lies in the folder of the index, {}: an index needs a folder of its own",
            input.display(),
            index.display()
        ),
    }
}

/// The line that `build` and `add` end with.
fn report(
    common: &Common,
    path: &Path,
    index: &Index,
    added: u64,
    replaced: u64,
    left_out: &LeftOut,
    elapsed: Duration,
) -> Result<()> {
    let elapsed = elapsed.as_secs_f64();
    if common.json {
        let mut facts = facts(index);
        facts["added"] = json!(added);
        facts["replaced"] = json!(replaced);
        facts["left_out"] = json!(left_out.count);
        facts["seconds"] = json!(elapsed);
        return print_json(&facts);
    }
    if common.quiet {
        return Ok(());
    }
    let replaced = match replaced {
        0 => String::new(),
        rows => format!(" ({} in place of older ones)", count(rows)),
    };
    print(&format!(
        "{}: {} rows added{replaced}, {} now, {} bytes a row, {} in all; {} ({} rows/s)\n{}",
        path.display(),
        count(added),
        count(index.len()),
        index.bytes_per_row(),
        size(index.len() * index.bytes_per_row() as u64),
        crate::output::seconds(elapsed),
        count((added as f64 / elapsed) as u64),
        left_out.line(", left out"),
    ))
}
