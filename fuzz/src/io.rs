//! Reads a file of vectors in all ways there are, and holds them against each other.

use crate::memory;
use frosh_io::{Batch, Error, Format, Options, Values, Vectors};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Rows wider than this are not read to the end: few bytes of text can stand for many such rows.
const WIDE: usize = 1 << 16;
/// Values up to which the ways of reading are compared.
const COMPARED: usize = 1 << 20;

/// The one file of this process, in memory where the system has a place for that.
fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let shared = PathBuf::from("/dev/shm");
        let folder = if shared.is_dir() { shared } else { std::env::temp_dir() };
        folder.join(format!("frosh-fuzz-{}", std::process::id()))
    })
}

/// Writes the file anew; a reader that still has the old one open goes on with that.
fn write(bytes: &[u8]) -> &'static Path {
    let _ = std::fs::remove_file(path());
    std::fs::write(path(), bytes).expect("the file for the input can be written");
    path()
}

/// Calls `work` with a file of this name and content.
pub fn with_file(name: &str, bytes: &[u8], work: impl FnOnce(&Path)) {
    let folder = path().with_extension("folder");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join(name);
    std::fs::write(&file, bytes).expect("the file for the input can be written");
    work(&file);
}

/// Stops at what must not be: a panic in the reading thread, which shows only by its silence.
fn expected(error: &Error) {
    assert!(!error.to_string().contains("stopped unexpectedly"), "{error}");
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn bounded(values: &Values, kept: &mut Option<Vec<f64>>) {
    if let Some(all) = kept {
        if all.len() + values.len() <= COMPARED {
            all.extend(values.to_f64());
        } else {
            *kept = None;
        }
    }
}

fn check(batch: &Batch, vectors: &Vectors) {
    assert_eq!(batch.dim(), vectors.dim());
    assert_eq!(batch.values().len(), batch.len() * batch.dim());
    assert!(!batch.is_empty(), "an empty batch");
    assert_eq!(batch.values().kind(), vectors.kind());
}

/// How many rows came, and their values if those are not too many.
struct Seen {
    rows: u64,
    values: Option<Vec<f64>>,
}

/// Reads from a row to the end. `None` after an error.
fn read(vectors: &Vectors, from: u64) -> Option<Seen> {
    let mut batches = vectors.batches_from(from);
    let mut seen = Seen { rows: 0, values: Some(Vec::new()) };
    loop {
        match batches.next() {
            Ok(Some(batch)) => {
                check(batch, vectors);
                seen.rows += batch.len() as u64;
                bounded(batch.values(), &mut seen.values);
                if vectors.dim() > WIDE {
                    return None;
                }
            }
            Ok(None) => return Some(seen),
            Err(error) => {
                expected(&error);
                return None;
            }
        }
    }
}

/// Reads the bytes as a file in every way; returns the values of all rows, if they can be read.
pub fn run(bytes: &[u8], options: &Options) -> Option<Vec<f64>> {
    memory::settle();
    open(write(bytes), options)
}

fn open(path: &Path, options: &Options) -> Option<Vec<f64>> {
    let name = path.to_str().expect("a plain name").to_owned();
    let vectors = match Vectors::open(&[name], options) {
        Ok(vectors) => vectors,
        Err(error) => {
            expected(&error);
            return None;
        }
    };
    let dim = vectors.dim();
    assert!((1..=1 << 24).contains(&dim), "dimension {dim}");
    let all = read(&vectors, 0);
    if dim > WIDE {
        // What a header claims must cost nothing here either.
        memory::settle();
        if let Err(error) = vectors.visit(&[0, 3], |_, row| assert_eq!(row.len(), dim)) {
            expected(&error);
        }
        return None;
    }
    if let (Some(seen), Some(rows)) = (&all, vectors.rows()) {
        assert_eq!(seen.rows, rows, "rows read, and rows claimed");
    }
    let tail = read(&vectors, 2);
    let mut visited = Vec::new();
    let visit = vectors.visit(&[0, 3], |id, row| {
        assert_eq!(row.len(), dim);
        visited.push((id, row.to_vec()));
    });
    if let Err(error) = &visit {
        expected(error);
    }
    let all = all?;
    let tail = tail.expect("the end can be read as all can");
    assert_eq!(tail.rows, all.rows.saturating_sub(2));
    let values = all.values?;
    assert_eq!(values.len() as u64, all.rows * dim as u64);
    let after = values.get(2 * dim..).unwrap_or_default();
    let tail = tail.values.expect("not more than all");
    assert!(after.len() == tail.len() && after.iter().zip(&tail).all(|(a, b)| same(*a, *b)));
    // Numbers of rows count bad ones too, which here are left out.
    if !options.skip_bad {
        assert_eq!(visit.is_ok(), all.rows > 3, "{visit:?}");
        for (id, row) in visited {
            let wanted = &values[id as usize * dim..][..dim];
            assert!(row.iter().zip(wanted).all(|(a, b)| same(*a, *b)), "row {id}");
        }
    }
    Some(values)
}

/// The names of the first few arrays, data sets or columns.
fn names(path: &Path, options: &Options) -> Vec<String> {
    match frosh_io::contents(path, options) {
        Ok(found) => {
            let all = found.map(|found| found.1).unwrap_or_default();
            let bare = |text: String| match text.rfind(" (") {
                Some(end) => text[..end].to_owned(),
                None => text,
            };
            all.into_iter().take(3).map(bare).collect()
        }
        Err(error) => {
            expected(&error);
            Vec::new()
        }
    }
}

/// As [`run`], and again for what the file says it contains, and with bad rows left out.
pub fn run_all(bytes: &[u8], format: Format) {
    let options = Options { format: Some(format), ..Options::default() };
    run(bytes, &options);
    let path = path();
    let names = names(path, &options);
    if names.len() > 1 {
        for name in names {
            let name = Some(name);
            let (column, dataset) = (name.clone(), name);
            open(path, &Options { column, dataset, ..options.clone() });
        }
    }
    if matches!(format, Format::Parquet | Format::Arrow) {
        // Columns of numbers, each a dimension.
        let columns = Some("*".parse().expect("valid columns"));
        open(path, &Options { columns, ..options.clone() });
        open(path, &Options { skip_bad: true, ..options });
    }
}
