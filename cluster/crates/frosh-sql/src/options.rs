//! The options of a function: text such as `'bits=64, metric=cosine, skip_bad'`.

use datafusion::common::{DataFusionError, Result, plan_datafusion_err};
use frosh::{Config, Method, Metric, Rotation};
use std::fmt::Display;
use std::str::FromStr;

/// Options of `frosh_sketch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SketchOptions {
    dim: Option<usize>,
    bits: Option<usize>,
    sketch_rows: Option<usize>,
    block_rows: Option<usize>,
    reservoir: Option<usize>,
    method: Method,
    metric: Metric,
    seed: u64,
    /// Leave rows out that cannot be used, and count them.
    pub(crate) skip_bad: bool,
}

/// Options of `frosh_model`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelOptions {
    pub(crate) rotation: Option<Rotation>,
    pub(crate) allow_constant: bool,
}

impl SketchOptions {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut options = Self::default();
        for (name, value) in pairs(text) {
            match name {
                "dim" => options.dim = Some(number(name, value)?),
                "bits" => options.bits = Some(number(name, value)?),
                "sketch_rows" => options.sketch_rows = Some(number(name, value)?),
                "block_rows" => options.block_rows = Some(number(name, value)?),
                "reservoir" => options.reservoir = Some(number(name, value)?),
                "seed" => options.seed = number(name, value)?,
                "method" => options.method = named(name, value)?,
                "metric" => options.metric = named(name, value)?,
                "skip_bad" => options.skip_bad = flag(name, value)?,
                _ => {
                    let known = "dim, bits, sketch_rows, block_rows, reservoir, seed, method, metric, skip_bad";
                    return Err(unknown("frosh_sketch", name, known));
                }
            }
        }
        if options.bits.is_some() && options.sketch_rows.is_some() {
            return Err(plan_datafusion_err!(
                "frosh_sketch: bits and sketch_rows both set the rows of the sketch: give one of them"
            ));
        }
        // The dimension is not known yet. The other settings are checked before any row is read.
        let checked = options.config(options.dim.unwrap_or(1 << 10)).resolved_block_rows();
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
        if let Some(rows) = self.sketch_rows.or(self.bits.map(|bits| bits.saturating_mul(2))) {
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
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut options = Self::default();
        for (name, value) in pairs(text) {
            match name {
                "rotation" => options.rotation = Some(named(name, value)?),
                "allow_constant" => options.allow_constant = flag(name, value)?,
                _ => return Err(unknown("frosh_model", name, "rotation, allow_constant")),
            }
        }
        Ok(options)
    }
}

/// Options of `frosh_encode`: whether rows that cannot be used get a null instead of an error.
pub(crate) fn skips_bad(text: &str) -> Result<bool> {
    let mut skip_bad = false;
    for (name, value) in pairs(text) {
        match name {
            "skip_bad" => skip_bad = flag(name, value)?,
            _ => return Err(unknown("frosh_encode", name, "skip_bad")),
        }
    }
    Ok(skip_bad)
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
        let options = ModelOptions::parse("rotation=itq").unwrap();
        assert_eq!(options.rotation, Some(Rotation::Itq));
        assert!(skips_bad("skip_bad=true").unwrap() && !skips_bad("").unwrap());
    }

    #[test]
    fn wrong_options_are_named() {
        for (text, said) in [
            ("bit=64", "no option \"bit\""),
            ("bits", "bits needs a value"),
            ("bits=many", "bits=many: expected a whole number"),
            ("bits=64, sketch_rows=128", "give one of them"),
            ("metric=l3", "l3"),
            ("sketch_rows=7", "sketch_rows = 7"),
            ("skip_bad=perhaps", "expected true or false"),
        ] {
            let error = SketchOptions::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(ModelOptions::parse("turn=1").unwrap_err().to_string().contains("rotation"));
        assert!(skips_bad("skip").unwrap_err().to_string().contains("skip_bad"));
    }
}
