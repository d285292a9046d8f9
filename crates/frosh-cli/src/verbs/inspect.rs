//! `frosh inspect`: what is in a file.

use crate::args::{Common, Reading};
use crate::choice;
use crate::output::{count, figures, print, print_json, size};
use anyhow::{Context as _, Result};
use clap::Args;
use frosh::{AnyFile, Codes, Hasher, Method, Model, Quantizer, Sketch, Sketcher};
use frosh_io::{FileFacts, Hint, Vectors, visible};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Tell what is in a sketch, model, codes, checkpoint or data file, or in an index.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh inspect model.frosh
  frosh inspect all.sketch --json | jq .captured_energy
  frosh inspect vectors.parquet")]
pub(crate) struct Inspect {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    reading: Reading,
}

/// Facts in the order in which people want them.
type Facts = Vec<(&'static str, Value)>;

impl Inspect {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        let path = &self.file;
        if path.join("index.json").is_file() {
            return super::index::tell(path, false, common);
        }
        let size_on_disk = std::fs::metadata(path).map(|m| m.len());
        let size_on_disk = size_on_disk.with_context(|| path.display().to_string())?;
        let loaded = if path.is_file() { AnyFile::load(path)? } else { None };
        let model = match &loaded {
            Some(AnyFile::Hasher(hasher)) => Some(Model::from(&**hasher)),
            Some(AnyFile::Quantizer(quantizer)) => Some(Model::from(&**quantizer)),
            _ => None,
        };
        let mut facts = match loaded {
            Some(AnyFile::Sketcher(sketcher)) => of_sketcher(&sketcher),
            Some(AnyFile::Sketch(sketch)) => of_sketch(&sketch),
            Some(AnyFile::Hasher(hasher)) => of_hasher(&hasher),
            Some(AnyFile::Quantizer(quantizer)) => of_quantizer(&quantizer),
            Some(AnyFile::Codes(codes)) => of_codes(&codes),
            _ => self.of_data(path)?,
        };
        facts.push((
            "file_bytes",
            json!(if path.is_dir() { folder_size(path) } else { size_on_disk }),
        ));
        if common.json {
            let object: serde_json::Map<String, Value> =
                facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            return print_json(&Value::Object(object));
        }
        let mut text = format!("{}\n", path.display());
        for (name, value) in facts.iter().filter(|(name, _)| *name != "choice") {
            text += &format!(
                "  {:<20}{}\n",
                name.replace("_bytes", "_size").replace('_', " "),
                shown(name, value)
            );
        }
        let table = model.as_ref().map(choice::table).unwrap_or_default();
        if !table.is_empty() {
            text += &format!("\nmeasured on sampled rows\n{table}");
        }
        print(&text)
    }

    fn of_data(&self, path: &Path) -> Result<Facts> {
        let input = [path];
        let vectors = match Vectors::open(&input, &self.reading.options(false)) {
            Ok(vectors) => vectors,
            // A file with several sets of vectors: list them, unless one was asked for.
            Err(error)
                if matches!(
                    error.hint(),
                    Some(Hint::ChooseColumn | Hint::ChooseColumns | Hint::ChooseDataset)
                ) && self.reading.column.is_none()
                    && self.reading.columns.is_none()
                    && self.reading.dataset.is_none() =>
            {
                let content = frosh_io::contents(path, &self.reading.options(false));
                let Ok(Some((format, content))) = content else { return Err(error.into()) };
                return Ok(vec![
                    ("kind", json!("vectors, of which one set must be chosen")),
                    ("format", json!(format.name())),
                    ("content", json!(content)),
                ]);
            }
            Err(error) => return Err(error.into()),
        };
        let files = vectors.files();
        let mut facts: Facts = vec![
            ("kind", json!("vectors")),
            ("format", json!(formats(files))),
            ("rows", json!(vectors.rows())),
            ("dim", json!(vectors.dim())),
            ("type", json!(vectors.kind().name())),
        ];
        if files.len() > 1 {
            facts.push(("files", json!(files.len())));
        }
        let mut batches = vectors.batches();
        if let Some(batch) = batches.next()? {
            facts.extend(first_rows(batch));
        }
        if let Ok(Some((_, content))) = frosh_io::contents(path, &self.reading.options(false)) {
            facts.push(("content", json!(content)));
        }
        Ok(facts)
    }
}

/// Bytes of all files below a folder.
fn folder_size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => folder_size(&entry.path()),
            _ => entry.metadata().map_or(0, |m| m.len()),
        })
        .sum()
}

/// Formats of the files, each once.
fn formats(files: &[FileFacts]) -> String {
    let mut names: Vec<String> = files
        .iter()
        .map(|f| format!("{}{}", f.format, if f.compressed { ", packed" } else { "" }))
        .collect();
    names.dedup();
    names.join("; ")
}

/// A look at the first rows.
fn first_rows(batch: &frosh_io::Batch) -> Facts {
    let dim = batch.dim();
    let mut values = batch.values().to_f64();
    values.truncate(1000 * dim);
    let finite = || values.iter().copied().filter(|x| x.is_finite());
    let norm = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>().sqrt();
    let norms: Vec<f64> = values.chunks_exact(dim).map(norm).filter(|n| n.is_finite()).collect();
    let n = norms.len().max(1) as f64;
    vec![
        ("looked_at_rows", json!(values.len() / dim)),
        ("smallest_value", json!(finite().fold(f64::INFINITY, f64::min))),
        ("largest_value", json!(finite().fold(f64::NEG_INFINITY, f64::max))),
        ("mean_length", json!(norms.iter().sum::<f64>() / n)),
        ("not_finite", json!(values.iter().filter(|x| !x.is_finite()).count())),
        ("first_row_begins", json!(values.iter().take(dim.min(6)).collect::<Vec<_>>())),
    ]
}

fn of_sketch(sketch: &Sketch) -> Facts {
    let certificate = sketch.certificate();
    let mut facts: Facts = vec![
        ("kind", json!("sketch")),
        ("method", json!(sketch.method().as_str())),
        ("metric", json!(sketch.metric().as_str())),
        ("rows_seen", json!(sketch.rows())),
        ("dim", json!(sketch.dim())),
        ("sketch_rows", json!(sketch.sketch_rows())),
        ("block_rows", json!(sketch.block_rows())),
        ("seed", json!(sketch.seed())),
        ("workers", json!(sketch.workers())),
        ("sampled_rows", json!(sketch.reservoir_rows())),
    ];
    if let Some(rows) = sketch.half_life() {
        facts.push(("half_life", json!(rows)));
        facts.push(("weight", json!(sketch.weight())));
        facts.push(("clock", json!(sketch.clock())));
    }
    if sketch.method() != Method::Lsh {
        facts.push(("largest_bits", json!((sketch.sketch_rows() / 2).min(sketch.dim()))));
        facts.push(("spectrum", json!(sketch.spectrum())));
        let most = (sketch.sketch_rows() / 2).min(sketch.dim());
        let ks: Vec<usize> = [8, 16, 32, 64, 128, 256].into_iter().filter(|k| *k <= most).collect();
        if let Some(shares) = sketch.captured_energy(&ks) {
            let captured: serde_json::Map<String, Value> =
                ks.iter().zip(shares).map(|(k, share)| (k.to_string(), json!(share))).collect();
            facts.push(("captured_energy", Value::Object(captured)));
        }
        facts.push(("certificate", json!({
            "removed": certificate.removed,
            "mass": certificate.mass,
            "relative": if certificate.mass > 0.0 { certificate.removed / certificate.mass } else { 0.0 },
            "compressed": certificate.compressed,
        })));
    }
    facts.push(("memory_bytes", json!(sketch.bytes())));
    facts
}

fn of_sketcher(sketcher: &Sketcher) -> Facts {
    let mut facts = of_sketch(&sketcher.sketch());
    facts[0] = ("kind", json!("checkpoint: a sketch in the middle of its stream"));
    if let Ok(note) = serde_json::from_str::<Value>(sketcher.note()) {
        facts.push(("made_from", note["files"].clone()));
    }
    facts
}

fn of_hasher(hasher: &Hasher) -> Facts {
    vec![
        ("kind", json!("model")),
        ("id", json!(hasher.id().to_string())),
        ("bits", json!(hasher.bits())),
        ("bytes_per_row", json!(choice::bytes_per_row(&hasher.into()))),
        ("dim", json!(hasher.dim())),
        ("method", json!(hasher.method().as_str())),
        ("metric", json!(hasher.metric().as_str())),
        ("rotation", json!(hasher.rotation().as_str())),
        ("rows_seen", json!(hasher.rows())),
        ("learned_directions", json!(hasher.rank())),
        ("seed", json!(hasher.seed())),
        ("factors", json!(hasher.has_factors())),
        ("ranking", json!(hasher.ranking().as_str())),
        ("choice", choice::object(&hasher.into())),
    ]
}

fn of_quantizer(quantizer: &Quantizer) -> Facts {
    vec![
        ("kind", json!("model of a quantiser")),
        ("id", json!(quantizer.id().to_string())),
        ("bytes_per_row", json!(quantizer.bytes())),
        ("dim", json!(quantizer.dim())),
        ("metric", json!(quantizer.metric().as_str())),
        ("rows_seen", json!(quantizer.rows())),
        ("directions", json!(quantizer.directions())),
        ("seed", json!(quantizer.seed())),
        ("ranking", json!("estimated")),
        ("choice", choice::object(&quantizer.into())),
    ]
}

fn of_codes(codes: &Codes) -> Facts {
    vec![
        ("kind", json!(if codes.is_quantized() { "codes of a quantiser" } else { "codes" })),
        ("rows", json!(codes.len())),
        ("bits", json!(codes.bits())),
        ("bytes_per_row", json!(codes.stored_bytes_per_row())),
        ("factors", json!(codes.has_factors())),
        ("model", json!(codes.hasher().to_string())),
    ]
}

/// A fact as text.
fn shown(name: &str, value: &Value) -> String {
    match (name, value) {
        (_, Value::String(text)) => visible(text),
        (_, Value::Bool(yes)) => if *yes { "yes" } else { "no" }.into(),
        (_, Value::Null) => "not known before reading".into(),
        ("file_bytes" | "memory_bytes", n) => size(n.as_u64().unwrap_or(0)),
        ("seed", n) => n.to_string(),
        (_, Value::Number(n)) => match n.as_u64() {
            Some(whole) => count(whole),
            None => figures(n.as_f64().unwrap_or(f64::NAN)),
        },
        ("spectrum", Value::Array(all)) => {
            let first: Vec<String> =
                all.iter().take(6).map(|x| figures(x.as_f64().unwrap_or(0.0))).collect();
            format!("{} ... ({} values; --json has all)", first.join(", "), all.len())
        }
        ("captured_energy", Value::Object(all)) => {
            let mut pairs: Vec<(usize, f64)> = all
                .iter()
                .map(|(k, x)| (k.parse().unwrap_or(0), x.as_f64().unwrap_or(0.0)))
                .collect();
            pairs.sort_by_key(|pair| pair.0);
            let parts: Vec<String> =
                pairs.iter().map(|(k, x)| format!("{:.1} % in {k}", x * 100.0)).collect();
            format!("{} directions (of the sampled rows)", parts.join(", "))
        }
        ("certificate", Value::Object(c)) => {
            let number = |name: &str| c.get(name).and_then(Value::as_f64).unwrap_or(0.0);
            let (whose, bound) = if c.get("compressed") == Some(&Value::Bool(true)) {
                (
                    " of the compressed rows",
                    "; compression's own error is bounded in probability only",
                )
            } else {
                ("", "")
            };
            format!(
                "no direction{whose} lost more than {} ({:.3} % of the mass){bound}",
                figures(number("removed")),
                number("relative") * 100.0
            )
        }
        (_, Value::Array(all)) => all
            .iter()
            .map(|v| match v {
                Value::String(text) => visible(text),
                Value::Number(n) if n.is_f64() => figures(n.as_f64().unwrap_or(0.0)),
                other => other.to_string(),
            })
            .collect::<Vec<_>>()
            .join(", "),
        (_, other) => other.to_string(),
    }
}
