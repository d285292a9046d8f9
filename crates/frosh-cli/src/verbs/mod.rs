//! One file for each verb.

pub(crate) mod calibrate;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod demo;
pub(crate) mod drift;
pub(crate) mod encode;
pub(crate) mod eval;
pub(crate) mod fit;
pub(crate) mod index;
pub(crate) mod inspect;
pub(crate) mod lab;
pub(crate) mod merge;
pub(crate) mod search;
pub(crate) mod sketch;
pub(crate) mod train;

use crate::args::{Cli, Verb};
use anyhow::Result;

/// Runs the verb that was asked for.
pub(crate) fn run(cli: &Cli) -> Result<()> {
    let common = &cli.common;
    match &cli.verb {
        Verb::Demo(verb) => verb.run(common),
        Verb::Train(verb) => verb.run(common),
        Verb::Sketch(verb) => verb.run(common),
        Verb::Merge(verb) => verb.run(common),
        Verb::Fit(verb) => verb.run(common),
        Verb::Encode(verb) => verb.run(common),
        Verb::Search(verb) => verb.run(common),
        Verb::Eval(verb) => verb.run(common),
        Verb::Calibrate(verb) => verb.run(common),
        Verb::Index(verb) => verb.run(common),
        Verb::Drift(verb) => verb.run(common),
        Verb::Inspect(verb) => verb.run(common),
        Verb::Convert(verb) => verb.run(common),
        Verb::Lab(verb) => verb.run(common),
        Verb::Completions(verb) => verb.run(),
        Verb::Man(verb) => verb.run(),
    }
}
