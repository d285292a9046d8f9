//! The command line: what every verb shares, and the table of verbs.

use crate::verbs;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command, CommandFactory as _, Parser, Subcommand};
use frosh::{Method, Metric, Model, Rotation};
use frosh_io::{Columns, Format, Kind, Options};
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  frosh demo                                            try it on made-up data
  frosh train vectors.npy --bits 64 -o model.frosh      learn codes of 8 bytes
  frosh encode model.frosh vectors.npy -o codes.frosh   turn vectors into codes
  frosh search model.frosh codes.frosh --queries q.npy  find the nearest 10

Formats: npy npz fvecs bvecs ivecs fbin f16bin u8bin i8bin parquet arrow hdf5 safetensors idx jsonl
words (GloVe, word2vec) libsvm csv tsv raw, the plain ones also packed as .gz or .zst. A folder or a pattern ('part-*.npy') is one stream.";

/// Learns short binary codes for vectors in one pass over a stream, in constant memory, on one machine or
/// on many, and finds neighbours by them.
#[derive(Parser)]
#[command(name = "frosh", version, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// How a quantiser encodes.
#[derive(Args)]
pub(crate) struct Encoding {
    /// For a quantiser: candidates that the search for the best code keeps, from 1 (fastest) to 32 (most accurate)
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=32))]
    effort: u64,
}

impl Encoding {
    /// The model, set to encode so.
    pub(crate) fn set(&self, model: Model) -> Model {
        model.effort(self.effort as usize)
    }
}

/// Options of every verb.
#[derive(Args, Clone)]
pub(crate) struct Common {
    /// Print one JSON object (or one for each line) instead of text
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
    /// No progress bar and no summary
    #[arg(long, short, global = true, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Threads to work on; 0 is what the machine has. Where files cannot be cut into pieces, one more reads. Results do
    /// not depend on it
    #[arg(long, global = true, default_value_t = 0, value_name = "N", hide_default_value = true,
          value_parser = at_most_1024)]
    pub(crate) threads: usize,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show the whole job on data made on the spot: nothing to download
    Demo(verbs::demo::Demo),
    /// Learn a model from vectors, in one pass
    Train(verbs::train::Train),
    /// Learn one worker's share, to be merged (DFROSH)
    Sketch(verbs::sketch::Sketch),
    /// Make one sketch of many
    Merge(verbs::merge::Merge),
    /// Make a model from a sketch
    Fit(verbs::fit::Fit),
    /// Turn vectors into packed codes
    Encode(verbs::encode::Encode),
    /// Find the nearest codes for query vectors
    Search(verbs::search::Search),
    /// Keep codes in a folder: add, remove and search rows by ids of your own
    Index(verbs::index::IndexVerbs),
    /// Measure a model: MAP and recall against exact neighbours
    Eval(verbs::eval::Eval),
    /// Find the candidates (and bits) that reach a recall after re-ranking
    Calibrate(verbs::calibrate::Calibrate),
    /// Tell whether the data has changed so much that a new model is due
    Drift(verbs::drift::Drift),
    /// Tell what is in a sketch, model, codes or data file
    Inspect(verbs::inspect::Inspect),
    /// Turn vectors from one format into another
    Convert(verbs::convert::Convert),
    /// Measure what the paper measured: its figures and its table, on this machine
    Lab(verbs::lab::Lab),
    /// Print a completion script for a shell
    Completions(verbs::completions::Completions),
    /// Write the manual pages
    Man(verbs::completions::Man),
}

/// Where vectors come from.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Input")]
pub(crate) struct Reading {
    /// Format of the data, where neither content nor name tells
    #[arg(long, value_name = "NAME", value_parser = format_name)]
    pub(crate) format: Option<Format>,
    /// Column with the vectors (Parquet, Arrow; within structures a path such as doc.emb) or field (JSON Lines)
    #[arg(long, value_name = "NAME", conflicts_with = "columns")]
    pub(crate) column: Option<String>,
    /// Columns of the dimensions, each of numbers (Parquet, Arrow, CSV, TSV): names, patterns or positions from 0,
    /// such as 'f*' or 2-101
    #[arg(long, value_name = "LIST")]
    pub(crate) columns: Option<Columns>,
    /// Data set (HDF5), array (.npz) or tensor (safetensors)
    #[arg(long, value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    /// Dimension of the rows (raw, LIBSVM)
    #[arg(long, value_name = "N")]
    pub(crate) dim: Option<usize>,
    /// Element type of raw input: f16, f32, f64, u8 or i8
    #[arg(long, value_name = "TYPE", value_parser = kind_name)]
    pub(crate) raw_type: Option<Kind>,
}

impl Reading {
    /// The chosen column or columns, as a checkpoint keeps them.
    pub(crate) fn column_setting(&self) -> Option<String> {
        self.column.clone().or_else(|| self.columns.as_ref().map(|all| format!("columns {all}")))
    }

    pub(crate) fn options(&self, skip_bad: bool) -> Options {
        Options {
            format: self.format,
            column: self.column.clone(),
            columns: self.columns.clone(),
            dataset: self.dataset.clone(),
            dim: self.dim,
            kind: self.raw_type,
            skip_bad,
            ..Options::default()
        }
    }
}

/// How a sketch is learned.
#[derive(Args, Clone)]
#[command(next_help_heading = "Learning")]
pub(crate) struct Learning {
    /// The algorithm: frosh-sparse has fewer operations, osh no compression (slow), lsh random directions
    #[arg(long, default_value_t = Method::Frosh, value_name = "NAME", ignore_case = true,
          value_parser = names::<Method>(Method::NAMES))]
    pub(crate) method: Method,
    /// How vectors are compared
    #[arg(long, default_value_t = Metric::L2, value_name = "NAME", ignore_case = true,
          value_parser = names::<Metric>(Metric::NAMES))]
    pub(crate) metric: Metric,
    /// Rows of the sketch: even, at least twice the bits, which is the default of `train`. More is slower, and a little
    /// more accurate where many directions matter, as in text embeddings
    #[arg(long, value_name = "N")]
    pub(crate) sketch_rows: Option<usize>,
    /// Rows that are compressed together: a power of two
    #[arg(long, value_name = "N")]
    pub(crate) block_rows: Option<usize>,
    /// Rows of a run, which one thread learns from at a time; 0 for one run
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) run_rows: Option<u64>,
    /// Rows sampled for what a fit measures, and for codebooks; 0 for none. By default 16384, and 65536 for --bytes; at
    /// most 32 MB
    #[arg(long, value_name = "N")]
    pub(crate) reservoir: Option<usize>,
    /// Make older rows count less: a row that is N rows old counts half. For data that changes, where only recent rows are
    /// searched; several times --reservoir is a good N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 62))]
    pub(crate) half_life: Option<u64>,
    /// Seed of all randomness: the same seed and rows give the same file
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
    /// Save the state here every so often; started again after a crash with the same arguments, go on from
    /// it. Settings, and the sizes, times of modification and (where looked at) bytes of the files, must be as they were
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<std::path::PathBuf>,
    /// Seconds between checkpoints
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", requires = "checkpoint")]
    pub(crate) checkpoint_every: f64,
}

/// How a model is made from a sketch.
#[derive(Args, Clone)]
#[command(next_help_heading = "Model")]
pub(crate) struct Fitting {
    /// Bits of a code: 64 is 8 bytes for each vector
    #[arg(long, short, default_value_t = 64, value_name = "N", value_parser = possible_bits)]
    pub(crate) bits: usize,
    /// Bytes of a code of a quantiser instead of sign bits: more accuracy a byte, slower to encode, no Hamming distances
    #[arg(long, value_name = "N", value_parser = possible_bytes, conflicts_with_all = ["bits", "rotation"])]
    pub(crate) bytes: Option<usize>,
    /// How directions are turned before signs are taken; by default refined (itq, of directions that the sampled rows
    /// have improved) where the sample is large enough, else random
    #[arg(long, value_name = "NAME", ignore_case = true,
          value_parser = names::<Rotation>(Rotation::NAMES))]
    pub(crate) rotation: Option<Rotation>,
    /// Replace the model that is there. Codes and indexes made with it cannot be searched with the new one
    #[arg(long)]
    pub(crate) force: bool,
    /// Make a model even of rows that are all equal: its codes tell nothing
    #[arg(long)]
    pub(crate) allow_constant: bool,
}

impl Fitting {
    /// A quantiser of so many bytes, with nothing else asked for.
    pub(crate) fn quantizer(bytes: usize) -> Self {
        Self {
            bits: 8 * bytes,
            bytes: Some(bytes),
            rotation: None,
            force: false,
            allow_constant: false,
        }
    }
}

/// The command line. Numbers may be negative, so that the answer to one is about the number and not about a flag, and the
/// texts after the options are wrapped to the terminal.
pub(crate) fn command() -> Command {
    prepare(Cli::command())
}

fn prepare(command: Command) -> Command {
    const NUMBERS: [&str; 7] = ["N", "N|auto", "K", "BITS", "SECONDS", "SHARE", "N|N%"];
    let number = |argument: &Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().any(|name| NUMBERS.contains(&name.trim_end_matches(",...")))
    };
    let after = command.get_after_help().map(|text| wrappable(&text.to_string()));
    let command = match after {
        Some(text) => command.after_help(text),
        None => command,
    };
    command
        .mut_args(|argument| match number(&argument) {
            true => argument.allow_negative_numbers(true),
            false => argument,
        })
        .mut_subcommands(prepare)
}

/// A text with one line for each paragraph, which is then wrapped as a whole. Examples keep their lines.
fn wrappable(text: &str) -> String {
    let paragraph = |text: &str| match text.starts_with("Example") {
        true => text.to_owned(),
        false => text.replace('\n', " "),
    };
    text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}

/// A parser for one of these names, which completions and help know.
pub(crate) fn names<T>(known: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = frosh::Error> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(known).try_map(|name| name.to_ascii_lowercase().parse::<T>())
}

fn at_most_1024(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 0..=1024) => Ok(threads),
        _ => Err("expected a whole number from 0 to 1024".into()),
    }
}

pub(crate) fn possible_bytes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes @ 4..=64) => Ok(bytes),
        _ => Err("expected a whole number from 4 to 64".into()),
    }
}

fn possible_bits(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bits @ 1..=8192) => Ok(bits),
        _ => Err("expected a whole number from 1 to 8192".into()),
    }
}

/// Refuses an output that is one of the inputs, or another output: it would be destroyed.
pub(crate) fn check_distinct<'a>(
    output: &Path,
    others: impl IntoIterator<Item = &'a Path>,
) -> anyhow::Result<()> {
    let Ok(place) = output.canonicalize() else { return Ok(()) };
    match others.into_iter().find(|other| other.canonicalize().is_ok_and(|o| o == place)) {
        None => Ok(()),
        Some(_) => anyhow::bail!(
            "{} is also an input, and would be overwritten: give the output another name",
            output.display()
        ),
    }
}

/// Whether two names mean one file, there or not.
pub(crate) fn same_place(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        path.canonicalize().ok().or_else(|| Some(folder.join(path.file_name()?)))
    };
    place(a).is_some() && place(a) == place(b)
}

pub(crate) fn format_name(name: &str) -> Result<Format, String> {
    name.parse()
}

pub(crate) fn kind_name(name: &str) -> Result<Kind, String> {
    Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        let known: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        format!("{name:?} is no element type; use one of {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    /// All verbs and their verbs.
    fn each(command: &Command, look: &mut impl FnMut(&Command)) {
        look(command);
        command.get_subcommands().for_each(|verb| each(verb, look));
    }

    #[test]
    fn texts_after_the_options_fit_narrow_terminals() {
        each(&command(), &mut |verb| {
            let text = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            for paragraph in text.split("\n\n") {
                let lines: Vec<_> = paragraph.lines().collect();
                if paragraph.starts_with("Example") {
                    let long: Vec<_> = lines.iter().filter(|line| line.len() > 80).collect();
                    assert!(long.is_empty(), "{}: {long:#?}", verb.get_name());
                } else {
                    assert!(lines.len() <= 1, "{}: {paragraph}", verb.get_name());
                }
            }
        });
    }

    #[test]
    fn only_options_of_the_input_stand_under_input() {
        let input =
            ["format", "column", "columns", "dataset", "dim", "raw-type", "skip-bad", "skipped"];
        each(&command(), &mut |verb| {
            for argument in verb.get_arguments() {
                let long = argument.get_long().unwrap_or_default();
                let heading = argument.get_help_heading();
                assert_eq!(
                    heading == Some("Input"),
                    input.contains(&long),
                    "{}: {long:?}",
                    verb.get_name()
                );
            }
        });
    }
}
