//! The folder of results: written whole after every cell, so that an interrupted run keeps what it has.
//!
//! `results.json` holds everything, and `report.html` shows it; one CSV file for each experiment holds the same for
//! spreadsheets; `cells.json` says which cells are finished, so that a resumed run does not repeat what was ended by
//! its time limit.

use crate::error::{Error, Result};
use crate::machine;
use crate::results::{Record, Results, Run};
use crate::settings::{Experiment, Settings};
use frosh::AtomicFile;
use std::collections::{BTreeSet, HashMap};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Seconds between two writings of the files, at least: a cell may take milliseconds.
const PAUSE: f64 = 2.0;

/// The results of a run, in memory and on disk.
pub(crate) struct Store {
    folder: PathBuf,
    results: Results,
    /// Where a record with these choices is.
    places: HashMap<String, usize>,
    finished: BTreeSet<String>,
    start: Instant,
    before: f64,
    saved: Option<Instant>,
}

impl Store {
    /// Begins, or goes on with, a folder of results.
    pub(crate) fn open(settings: &Settings) -> Result<Self> {
        let folder = settings.out.clone();
        let file = folder.join("results.json");
        let run = Run {
            command: settings.command.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            quick: settings.quick,
            no_rotation: settings.no_rotation,
            repeats: settings.repeats(),
            queries: settings.queries(),
            seconds: 0.0,
            machine: machine::look(),
        };
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let mut store = Self {
            folder,
            results: Results { run, records: Vec::new() },
            places: HashMap::new(),
            finished: BTreeSet::new(),
            start: Instant::now(),
            before: 0.0,
            saved: None,
        };
        if !file.exists() {
            return Ok(store);
        }
        if !settings.resume {
            return Err(Error::Usage(format!(
                "{} holds results already: add --resume to go on with them, or name another folder with --out",
                store.folder.display()
            )));
        }
        let old: Results = read_json(&file)?;
        let (now, then) = (&store.results.run, &old.run);
        let differs = [
            ("--quick", now.quick != then.quick),
            ("--no-rotation", now.no_rotation != then.no_rotation),
            ("--queries", now.queries != then.queries),
        ];
        if let Some((option, _)) = differs.iter().find(|(_, differs)| *differs) {
            return Err(Error::Usage(format!(
                "the results in {} were made with another {option} (by: {}): use the same, or another --out",
                store.folder.display(),
                then.command
            )));
        }
        store.before = old.run.seconds;
        old.records.into_iter().for_each(|record| store.add(record));
        let cells = store.folder.join("cells.json");
        if cells.exists() {
            store.finished = read_json(&cells)?;
        }
        Ok(store)
    }

    /// Adds a record; one that differs only in what was measured is replaced.
    pub(crate) fn add(&mut self, record: Record) {
        let key = format!("{} {}", record.chosen(), record.repeat);
        match self.places.get(&key) {
            Some(place) => self.results.records[*place] = record,
            None => {
                self.places.insert(key, self.results.records.len());
                self.results.records.push(record);
            }
        }
    }

    /// Whether a cell, or a repeat of one, is finished.
    pub(crate) fn is_finished(&self, cell: &str) -> bool {
        self.finished.contains(cell)
    }

    /// Notes that a cell, or a repeat of one, is finished, and writes the files.
    pub(crate) fn finish(&mut self, cell: &str) -> Result<()> {
        self.finished.insert(cell.to_owned());
        if self.saved.is_none_or(|saved| saved.elapsed().as_secs_f64() > PAUSE) {
            self.save()?;
        }
        Ok(())
    }

    /// Writes all files.
    pub(crate) fn save(&mut self) -> Result<()> {
        self.results.run.seconds = self.before + self.start.elapsed().as_secs_f64();
        // Only names that we know: a record that was read may claim any.
        for name in Experiment::ALL.map(Experiment::name).into_iter().chain(["whole-training"]) {
            let own = self.results.records.iter().filter(|r| r.experiment == name);
            let own: Vec<&Record> = own.collect();
            if !own.is_empty() {
                write(&self.folder.join(format!("{name}.csv")), csv(&own).as_bytes())?;
            }
        }
        write(&self.folder.join("results.json"), &json(&self.results))?;
        write(&self.folder.join("cells.json"), &json(&self.finished))?;
        // The page too, so that a run that is stopped, or takes an hour, can be looked at.
        write(&self.folder.join("report.html"), crate::page(&self.results).as_bytes())?;
        self.saved = Some(Instant::now());
        Ok(())
    }

    pub(crate) fn results(&self) -> &Results {
        &self.results
    }
}

pub(crate) fn json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    // Maps with keys that are no strings are the only thing that could fail, and there are none.
    serde_json::to_vec(value).unwrap_or_default()
}

pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::File {
        path: path.to_owned(),
        why: format!("is no file of results ({error}): name another folder with --out"),
    })
}

/// Writes a file whole or not at all.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let whole = AtomicFile::begin(path)?;
    whole.file().write_all(bytes).map_err(Error::io(path))?;
    Ok(whole.commit()?)
}

/// The records of one experiment as a table; a curve has a line for each point.
fn csv(records: &[&Record]) -> String {
    let curves = records.iter().any(|r| r.returned.is_some());
    let streams = records.iter().any(|r| r.versions.is_some());
    let mut out = String::from(
        "data,method,sweep,rows,dim,sketch_rows,block_rows,tau,bits,round,repeat,relative_error,seconds,map",
    );
    out.push_str(if streams { ",map_error,recall_at_10,encoded,versions" } else { "" });
    out.push_str(if curves { ",returned,recall,precision\n" } else { "\n" });
    for r in records {
        let quoted = |text: &str| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        fn cell<T: ToString>(value: Option<T>) -> String {
            value.map_or_else(String::new, |v| v.to_string())
        }
        let mut line = [
            quoted(&r.data),
            quoted(&r.method),
            quoted(r.sweep.as_deref().unwrap_or("")),
            r.rows.to_string(),
            r.dim.to_string(),
            cell(r.sketch_rows),
            cell(r.block_rows),
            cell(r.tau),
            cell(r.bits),
            cell(r.round),
            r.repeat.to_string(),
            cell(r.relative_error),
            cell(r.seconds),
            cell(r.map),
        ]
        .join(",");
        if streams {
            let more = [cell(r.map_error), cell(r.recall), cell(r.encoded), cell(r.versions)];
            line += &format!(",{}", more.join(","));
        }
        match &r.returned {
            Some(points) => {
                for [returned, recall, precision] in points {
                    out.push_str(&format!("{line},{returned},{recall},{precision}\n"));
                }
            }
            None => out.push_str(&format!("{line}\n")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(out: &Path, resume: bool) -> Settings {
        Settings { out: out.to_owned(), resume, quick: true, ..Settings::default() }
    }

    fn record(repeat: u32, map: f64) -> Record {
        let (experiment, data) = ("bits".into(), "a, \"b\"".into());
        Record { experiment, data, repeat, map: Some(map), ..Record::default() }
    }

    #[test]
    fn a_run_goes_on_where_it_stopped_and_only_if_asked_to() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let mut store = Store::open(&settings(&out, false)).unwrap();
        store.add(record(0, 0.25));
        store.finish("cell #0").unwrap();
        drop(store);
        let refused = Store::open(&settings(&out, false)).err().unwrap().to_string();
        assert!(refused.contains("--resume") && refused.contains("--out"), "{refused}");
        let other = Settings { queries: Some(7), ..settings(&out, true) };
        assert!(Store::open(&other).err().unwrap().to_string().contains("--queries"));

        let mut store = Store::open(&settings(&out, true)).unwrap();
        assert!(store.is_finished("cell #0") && !store.is_finished("cell"));
        // The same cell again replaces what it measured; another repeat is added.
        store.add(record(0, 0.5));
        store.add(record(1, 0.75));
        store.save().unwrap();
        let maps: Vec<_> = store.results().records.iter().filter_map(|r| r.map).collect();
        assert_eq!(maps, [0.5, 0.75]);
        let back: Results = read_json(&out.join("results.json")).unwrap();
        assert_eq!(&back, store.results());
        let table = std::fs::read_to_string(out.join("bits.csv")).unwrap();
        assert_eq!(table.lines().count(), 3);
        assert!(table.contains("\"a, \"\"b\"\"\","), "{table}");
    }

    #[test]
    fn what_is_no_file_of_results_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("results.json"), "[1]").unwrap();
        assert!(matches!(Store::open(&settings(folder.path(), true)), Err(Error::File { .. })));
    }
}
