//! Which kind of file an argument is, so that swapped and wrong arguments are called by their name.

use anyhow::{Result, anyhow, bail};
use frosh::{Codes, Model, Sketch};
use frosh_io::{Format, Options, Vectors};
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::Path;

/// Longest header that is looked at.
const LONGEST: u64 = 1 << 20;

/// What a path can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Model,
    Sketch,
    Checkpoint,
    Codes,
    Index,
    Vectors,
}

impl Kind {
    /// The kind of a file or folder, by its header or its name. Its content is not checked.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        if path.is_dir() {
            return path.join("index.json").is_file().then_some(Self::Index);
        }
        match format(path).as_deref() {
            Some("frosh-hasher" | "frosh-quantizer") => Some(Self::Model),
            Some("frosh-sketch") => Some(Self::Sketch),
            Some("frosh-sketcher") => Some(Self::Checkpoint),
            Some("frosh-codes") => Some(Self::Codes),
            Some(_) => None,
            None => (path.is_file() && Format::of_name(path).is_some()).then_some(Self::Vectors),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Model => "a model",
            Self::Sketch => "a sketch",
            Self::Checkpoint => "a checkpoint",
            Self::Codes => "a codes file",
            Self::Index => "an index",
            Self::Vectors => "a file of vectors",
        }
    }
}

/// The format in the header of a file of frosh.
fn format(path: &Path) -> Option<String> {
    if !path.is_file() {
        return None;
    }
    let mut file = std::fs::File::open(path).ok()?;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    (length <= LONGEST).then(|| file.take(length).read_to_end(&mut header))?.ok()?;
    let header: serde_json::Value = serde_json::from_slice(&header).ok()?;
    Some(header["__metadata__"]["format"].as_str()?.to_owned())
}

/// Loads a model, which is the first argument of `usage`.
pub(crate) fn model(path: &Path, usage: &str) -> Result<Model> {
    Model::load(path).map_err(|error| {
        let (name, kind) = (path.display(), Kind::of(path));
        let Some(kind) = kind.filter(|kind| *kind != Kind::Model) else { return error.into() };
        let what = kind.name();
        match kind {
            Kind::Sketch => anyhow!(
                "{name} is a sketch, not a model: make one with `frosh fit {name} -o model.frosh`"
            ),
            Kind::Checkpoint => anyhow!(
                "{name} is a checkpoint, not a model: finish it with the command that wrote it"
            ),
            Kind::Index if usage.starts_with("frosh search") => anyhow!(
                "{name} is an index: search it with `frosh index search {name} --queries DATA`"
            ),
            _ => anyhow!("{name} is {what}, and the model comes first: {usage}"),
        }
    })
}

/// Loads codes, to be searched with a model.
pub(crate) fn codes(path: &Path) -> Result<Codes> {
    Codes::load(path).map_err(|error| {
        let name = path.display();
        match Kind::of(path) {
            Some(Kind::Index) => anyhow!(
                "{name} is an index, which has its model: search it with `frosh index search {name} --queries DATA`"
            ),
            Some(kind @ (Kind::Model | Kind::Sketch | Kind::Checkpoint)) => anyhow!(
                "{name} is {}, not codes: make them with `frosh encode MODEL DATA -o codes.frosh`",
                kind.name()
            ),
            Some(Kind::Vectors) => anyhow!(
                "{name} is a file of vectors, not codes: make them with `frosh encode MODEL {name} -o codes.frosh`"
            ),
            _ => error.into(),
        }
    })
}

/// Loads a sketch.
pub(crate) fn sketch(path: &Path) -> Result<Sketch> {
    Sketch::load(path).map_err(|error| {
        let name = path.display();
        match Kind::of(path) {
            Some(Kind::Model) => anyhow!(
                "{name} is a model, not a sketch: models cannot be merged or fitted again. `frosh sketch` makes sketches"
            ),
            Some(Kind::Checkpoint) => anyhow!(
                "{name} is a checkpoint, not a sketch: finish it with the command that wrote it"
            ),
            Some(Kind::Vectors) => anyhow!(
                "{name} is a file of vectors, not a sketch: make one with `frosh sketch {name} -o x.sketch`"
            ),
            Some(kind @ (Kind::Codes | Kind::Index)) => {
                anyhow!("{name} is {}, not a sketch: `frosh sketch` makes sketches", kind.name())
            }
            _ => error.into(),
        }
    })
}

/// Refuses a file where a folder with an index is expected.
pub(crate) fn check_index(path: &Path) -> Result<()> {
    let name = path.display();
    match Kind::of(path) {
        Some(Kind::Model) => bail!(
            "{name} is a model, not an index: make one with `frosh index build {name} DATA -o index`"
        ),
        Some(Kind::Codes) => bail!(
            "{name} is a codes file, not an index: search it with `frosh search MODEL {name} --queries DATA`"
        ),
        Some(kind) if kind != Kind::Index => bail!("{name} is {}, not an index", kind.name()),
        _ => Ok(()),
    }
}

/// Opens files of vectors.
pub(crate) fn vectors(data: &[OsString], options: &Options) -> Result<Vectors> {
    Vectors::open(data, options).map_err(|error| {
        let kind = |path: &OsStr| Kind::of(Path::new(path)).filter(|kind| *kind != Kind::Vectors);
        match data.iter().find_map(|path| Some((path, kind(path)?))) {
            Some((path, kind)) => {
                anyhow!("{} is {}, but vectors are expected here", path.display(), kind.name())
            }
            None => error.into(),
        }
    })
}

/// Refuses to replace a model: codes and indexes that it made would be lost with it.
pub(crate) fn check_replaces_no_model(output: &Path) -> Result<()> {
    if Kind::of(output) == Some(Kind::Model) {
        bail!(
            "{} is a model already, and codes made with it can be searched with no other: give the new one another \
             name, or replace it with --force",
            output.display()
        );
    }
    Ok(())
}
