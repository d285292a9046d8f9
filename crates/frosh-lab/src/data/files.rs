//! The paper's data sets from files, found by name in a folder and the folders below it.

use super::{DataSet, Source};
use crate::error::{Error, Result};
use frosh_io::{Options, Vectors};
use std::path::{Path, PathBuf};

/// Folders below the one given that are looked into.
const DEPTH: usize = 3;

/// One of the paper's sets: what it is and where to look for it.
struct Known {
    name: &'static str,
    rows: u64,
    dim: usize,
    origin: &'static str,
    /// File names, of which each must be there (or, packed, with .gz); in order, they are the base.
    base: &'static [&'static str],
    queries: Option<&'static str>,
    /// Else: one file whose own name, or whose folder's, begins with this.
    prefix: Option<&'static str>,
}

const KNOWN: [Known; 4] = [
    Known {
        name: "mnist",
        rows: 70_000,
        dim: 784,
        origin: "the MNIST database of handwritten digits, http://yann.lecun.com/exdb/mnist",
        base: &["train-images-idx3-ubyte", "t10k-images-idx3-ubyte"],
        queries: None,
        prefix: None,
    },
    Known {
        name: "cifar10-gist",
        rows: 60_000,
        dim: 512,
        origin: "GIST descriptors of the images at https://www.cs.toronto.edu/~kriz/cifar.html, as \
                 cifar10-gist512/base.npy",
        base: &[],
        queries: None,
        prefix: Some("cifar10-gist"),
    },
    Known {
        name: "gist1m",
        rows: 1_000_000,
        dim: 960,
        origin: "the TEXMEX corpus, http://corpus-texmex.irisa.fr (gist.tar.gz)",
        base: &["gist_base.fvecs"],
        queries: Some("gist_query.fvecs"),
        prefix: None,
    },
    Known {
        name: "flickr25600",
        rows: 100_000,
        dim: 25_600,
        origin: "the data of Circulant Binary Embedding (Yu and others 2014), \
                 https://github.com/felixyu/cbe, as flickr25600.npy or .fbin",
        base: &[],
        queries: None,
        prefix: Some("flickr25600"),
    },
];

/// What is known about one of the paper's sets.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name.
    pub name: &'static str,
    /// Rows that it should have.
    pub rows: u64,
    /// Dimensions that it should have.
    pub dim: usize,
    /// Where it comes from.
    pub origin: &'static str,
    /// Its files, where they are there.
    pub files: Vec<PathBuf>,
    /// What is wrong with them.
    pub trouble: Option<String>,
}

/// Looks for the paper's sets in these folders, and checks their shapes.
pub fn catalogue(folders: &[PathBuf]) -> Result<Vec<Found>> {
    let all = files_below(folders)?;
    KNOWN
        .iter()
        .map(|known| {
            let files = known.files(&all);
            let trouble = match files.is_empty() {
                true => None,
                false => known.check(&files).err().map(|error| error.to_string()),
            };
            let Known { name, rows, dim, origin, .. } = *known;
            Ok(Found { name, rows, dim, origin, files, trouble })
        })
        .collect()
}

/// Finds one of the paper's sets.
pub(crate) fn find(folders: &[PathBuf], name: &str) -> Result<Option<DataSet>> {
    let all = files_below(folders)?;
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else { return Ok(None) };
    let files = known.files(&all);
    if files.is_empty() {
        return Ok(None);
    }
    known.check(&files)?;
    let queries = known.queries.and_then(|wanted| all.iter().find(|path| is_named(path, wanted)));
    let queries = queries.map(|path| FileSource::open(std::slice::from_ref(path))).transpose()?;
    Ok(Some(DataSet {
        name: name.to_owned(),
        base: Box::new(FileSource::open(&files)?),
        queries: queries.map(|source| Box::new(source) as Box<dyn Source>),
    }))
}

impl Known {
    fn files(&self, all: &[PathBuf]) -> Vec<PathBuf> {
        let Some(prefix) = self.prefix else {
            let named = |name: &&str| all.iter().find(|path| is_named(path, name)).cloned();
            let found: Option<Vec<_>> = self.base.iter().map(named).collect();
            return found.unwrap_or_default();
        };
        let starts = |name: Option<&std::ffi::OsStr>| {
            // FLICKR-25600 is written in several ways.
            name.is_some_and(|n| plain(&n.to_string_lossy()).starts_with(&plain(prefix)))
        };
        let own = |path: &Path| path.file_stem().is_some_and(|s| s != "base" && s != "labels");
        let fits = |path: &&PathBuf| {
            let vectors = path.extension().is_some_and(|e| e == "npy" || e == "fbin");
            let folder = path.parent().and_then(Path::file_name);
            let is_base = path.file_stem().is_some_and(|s| s == "base");
            vectors && (is_base && starts(folder) || own(path) && starts(path.file_stem()))
        };
        all.iter().find(fits).cloned().into_iter().collect()
    }

    fn check(&self, files: &[PathBuf]) -> Result<()> {
        let source = FileSource::open(files)?;
        if (source.rows(), source.dim()) == (self.rows, self.dim) {
            return Ok(());
        }
        let why = format!(
            "{} has {} rows of {} values, but {} of {} are here",
            self.name,
            self.rows,
            self.dim,
            source.rows(),
            source.dim()
        );
        Err(Error::File { path: files[0].clone(), why })
    }
}

fn plain(name: &str) -> String {
    name.to_lowercase().replace(['-', '_'], "")
}

fn is_named(path: &Path, name: &str) -> bool {
    let own = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    own == name || own.strip_suffix(".gz") == Some(name)
}

pub(crate) fn files_below(folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
    fn walk(folder: &Path, depth: usize, to: &mut Vec<PathBuf>) -> Result<()> {
        for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
            let path = entry.map_err(Error::io(folder))?.path();
            if !path.is_dir() {
                to.push(path);
            } else if depth > 0 {
                walk(&path, depth - 1, to)?;
            }
        }
        Ok(())
    }
    let mut all = Vec::new();
    for folder in folders {
        if folder.is_dir() {
            walk(folder, DEPTH, &mut all)?;
        } else if !folder.exists() {
            return Err(Error::Usage(format!(
                "--data {}: there is no such file",
                folder.display()
            )));
        }
    }
    all.sort();
    Ok(all)
}

/// Files as single-precision rows.
pub(crate) struct FileSource {
    vectors: Vectors,
    rows: u64,
}

impl FileSource {
    pub(crate) fn open(files: &[PathBuf]) -> Result<Self> {
        let names: Vec<String> = files.iter().map(|p| p.to_string_lossy().into_owned()).collect();
        let vectors = Vectors::open(&names, &Options::default())?;
        let rows = match vectors.rows() {
            Some(rows) => rows,
            None => {
                let mut rows = 0;
                let mut batches = vectors.batches();
                while let Some(batch) = batches.next()? {
                    rows += batch.len() as u64;
                }
                rows
            }
        };
        Ok(Self { vectors, rows })
    }
}

impl Source for FileSource {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn dim(&self) -> usize {
        self.vectors.dim()
    }

    fn first(&self, end: u64, take: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let size = self.batch_rows() * self.dim();
        let mut waiting: Vec<f32> = Vec::with_capacity(2 * size);
        let mut batches = self.vectors.batches();
        let mut left = end.min(self.rows) as usize;
        while left > 0 {
            let Some(batch) = batches.next()? else { break };
            let wanted = left.min(batch.len());
            left -= wanted;
            let values = batch.values().to_f64();
            waiting.extend(values[..wanted * batch.dim()].iter().map(|x| *x as f32));
            let whole = waiting.len() / size * size;
            for part in waiting[..whole].chunks_exact(size) {
                take(part)?;
            }
            waiting.drain(..whole);
        }
        if waiting.is_empty() { Ok(()) } else { take(&waiting) }
    }
}
