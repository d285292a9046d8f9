//! The options of a function: text such as `'bits=64, metric=cosine, skip_bad'`.

use crate::models::{DEFAULT_EFFORT, Kind};
use datafusion::common::{DataFusionError, Result, plan_datafusion_err};
use frosh::{Config, Method, Metric, Rotation};
use std::fmt::Display;
use std::str::FromStr;

/// Options of `frosh_sketch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SketchOptions {
    dim: Option<usize>,
    bits: Option<usize>,
    bytes: Option<usize>,
    sketch_rows: Option<usize>,
    block_rows: Option<usize>,
    reservoir: Option<usize>,
    method: Method,
    metric: Metric,
    seed: u64,
    /// Leave rows out that cannot be used, and count them.
    pub(crate) skip_bad: bool,
}

/// Options of `frosh_model` and `frosh_quantizer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelOptions {
    pub(crate) rotation: Option<Rotation>,
    pub(crate) allow_constant: bool,
}

/// Options of `frosh_encode`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodeOptions {
    /// Rows that cannot be used get a null instead of an error.
    pub(crate) skip_bad: bool,
    /// How hard a quantiser searches for the best code.
    pub(crate) effort: usize,
}

impl SketchOptions {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut options = Self::default();
        for (name, value) in pairs(text) {
            match name {
                "dim" => options.dim = Some(number(name, value)?),
                "bits" => options.bits = Some(number(name, value)?),
                "bytes" => options.bytes = Some(number(name, value)?),
                "sketch_rows" => options.sketch_rows = Some(number(name, value)?),
                "block_rows" => options.block_rows = Some(number(name, value)?),
                "reservoir" => options.reservoir = Some(number(name, value)?),
                "seed" => options.seed = number(name, value)?,
                "method" => options.method = named(name, value)?,
                "metric" => options.metric = named(name, value)?,
                "skip_bad" => options.skip_bad = flag(name, value)?,
                _ => {
                    let known = "dim, bits, bytes, sketch_rows, block_rows, reservoir, seed, method, metric, skip_bad";
                    return Err(unknown("frosh_sketch", name, known));
                }
            }
        }
        if [options.bits, options.bytes, options.sketch_rows].iter().flatten().count() > 1 {
            return Err(plan_datafusion_err!(
                "frosh_sketch: bits, bytes and sketch_rows all set the rows of the sketch: give one of them"
            ));
        }
        // The dimension is not known yet. The other settings are checked before any row is read.
        let config = options.config(options.dim.unwrap_or(1 << 10));
        let checked = config.resolved_block_rows().map(drop);
        let checked =
            checked.and_then(|()| options.bytes.map_or(Ok(()), |n| config.check_quantizer(n)));
        checked.map_err(|error| plan_datafusion_err!("frosh_sketch: {error}"))?;
        Ok(options)
    }

    /// The length of rows, if it was given.
    pub(crate) fn dim(&self) -> Option<usize> {
        self.dim
    }

    /// The settings for rows of `dim` values. The worker number comes from the rows: which task learns from them must not
    /// matter.
    pub(crate) fn config(&self, dim: usize) -> Config {
        let mut config = Config::new(dim)
            .method(self.method)
            .metric(self.metric)
            .seed(self.seed)
            .worker_from_rows();
        if let Some(bytes) = self.bytes {
            // A number of bytes that no quantiser has must not overflow here: it is refused when the options are read.
            config = config.for_quantizer(bytes.min(1 << 20));
        }
        let of_bits = self.bits.map(|bits| bits.saturating_mul(2));
        if let Some(rows) = self.sketch_rows.or(of_bits) {
            config = config.sketch_rows(rows);
        }
        if let Some(rows) = self.block_rows {
            config = config.block_rows(rows);
        }
        if let Some(rows) = self.reservoir {
            config = config.reservoir_rows(rows);
        }
        config
    }
}

impl ModelOptions {
    pub(crate) fn parse(kind: Kind, text: &str) -> Result<Self> {
        let mut options = Self::default();
        for (name, value) in pairs(text) {
            match (kind, name) {
                (Kind::Hasher, "rotation") => options.rotation = Some(named(name, value)?),
                (_, "allow_constant") => options.allow_constant = flag(name, value)?,
                (Kind::Hasher, _) => {
                    return Err(unknown(kind.function(), name, "rotation, allow_constant"));
                }
                (Kind::Quantizer, _) => {
                    return Err(unknown(kind.function(), name, "allow_constant"));
                }
            }
        }
        Ok(options)
    }
}

impl EncodeOptions {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut options = Self { skip_bad: false, effort: DEFAULT_EFFORT };
        for (name, value) in pairs(text) {
            match name {
                "skip_bad" => options.skip_bad = flag(name, value)?,
                "effort" => options.effort = number(name, value)?,
                _ => return Err(unknown("frosh_encode", name, "skip_bad, effort")),
            }
        }
        match options.effort {
            1..=32 => Ok(options),
            effort => Err(plan_datafusion_err!(
                "frosh_encode: effort={effort}: expected a number from 1 (fastest) to 32 (most accurate)"
            )),
        }
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| match part.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (part, None),
    })
}

fn unknown(function: &str, name: &str, known: &str) -> DataFusionError {
    plan_datafusion_err!("{function}: there is no option {name:?}; the options are {known}")
}

fn missing(name: &str) -> DataFusionError {
    plan_datafusion_err!("the option {name} needs a value, such as {name}=64")
}

fn number<T: FromStr>(name: &str, value: Option<&str>) -> Result<T> {
    let value = value.ok_or_else(|| missing(name))?;
    let whole = value.parse();
    whole.map_err(|_| plan_datafusion_err!("{name}={value}: expected a whole number"))
}

fn named<T: FromStr<Err: Display>>(name: &str, value: Option<&str>) -> Result<T> {
    let value = value.ok_or_else(|| missing(name))?;
    value.to_ascii_lowercase().parse().map_err(|error| plan_datafusion_err!("{name}: {error}"))
}

fn flag(name: &str, value: Option<&str>) -> Result<bool> {
    match value {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(value) => Err(plan_datafusion_err!("{name}={value}: expected true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let options = SketchOptions::parse(" bits=16, metric=Cosine ,seed=7, skip_bad").unwrap();
        assert!(options.skip_bad);
        let want = Config::new(8).sketch_rows(32).metric(Metric::Cosine).seed(7).worker_from_rows();
        assert_eq!(options.config(8), want);
        assert_eq!(SketchOptions::parse("").unwrap().config(9), Config::new(9).worker_from_rows());
        let options = SketchOptions::parse("bytes=20").unwrap();
        assert_eq!(options.config(8), Config::new(8).for_quantizer(20).worker_from_rows());
        let options = SketchOptions::parse("bytes=20, reservoir=2000").unwrap();
        let want = Config::new(8).sketch_rows(160).reservoir_rows(2000).worker_from_rows();
        assert_eq!(options.config(8), want);
        let options = ModelOptions::parse(Kind::Hasher, "rotation=itq").unwrap();
        assert_eq!(options.rotation, Some(Rotation::Itq));
        let options = EncodeOptions::parse("skip_bad=true, effort=3").unwrap();
        assert_eq!(options, EncodeOptions { skip_bad: true, effort: 3 });
        let none = EncodeOptions::parse("").unwrap();
        assert_eq!(none, EncodeOptions { skip_bad: false, effort: 8 });
    }

    #[test]
    fn wrong_options_are_named() {
        for (text, said) in [
            ("bit=64", "no option \"bit\""),
            ("bits", "bits needs a value"),
            ("bits=many", "bits=many: expected a whole number"),
            ("bits=64, sketch_rows=128", "give one of them"),
            ("bits=64, bytes=8", "give one of them"),
            ("bytes=3", "4 to 64"),
            ("bytes=99999999999999999", "4 to 64"),
            ("bytes=8, reservoir=1000", "needs 1024"),
            ("bytes=8, method=lsh", "LSH"),
            ("metric=l3", "l3"),
            ("sketch_rows=7", "sketch_rows = 7"),
            ("skip_bad=perhaps", "expected true or false"),
        ] {
            let error = SketchOptions::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let said = |kind, text| ModelOptions::parse(kind, text).unwrap_err().to_string();
        assert!(said(Kind::Hasher, "turn=1").contains("rotation"));
        assert!(said(Kind::Quantizer, "rotation=itq").contains("no option \"rotation\""));
        for (text, words) in [
            ("skip", "skip_bad, effort"),
            ("effort=0", "1 (fastest)"),
            ("effort=33", "1 (fastest)"),
        ] {
            assert!(EncodeOptions::parse(text).unwrap_err().to_string().contains(words), "{text}");
        }
    }
}
