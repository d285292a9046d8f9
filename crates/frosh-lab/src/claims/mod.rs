//! The paper's claims, one by one, against what was measured.
//!
//! Section 5 of the paper states its findings in words ("comparable", "a large margin", "slightly"). Each is here with a
//! number in its place, a named constant with the reason for it, so that a verdict does not depend on who looks at a
//! figure. Where the words sum up the paper's own Table 2, the bound is that table's: a run that repeats the table must
//! not fail.
//!
//! A claim is looked at cell by cell (a data set, a code length, a round, a point of a sweep), each with the mean over
//! repeats. It holds if every cell meets the criterion, in part if some do. Where a claim fails and the reason is known,
//! it is said. Figures' values are not known from the paper, so no MAP is compared with the paper's.
//! The cost is a few passes over the records for each claim.

mod check;
mod quality;
mod sketch;
mod time;

#[cfg(test)]
mod tests;

use crate::results::Results;
use check::Rule;
use serde::Serialize;

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every cell meets the criterion.
    Holds,
    /// Some cells do.
    InPart,
    /// No cell does.
    DoesNotHold,
    /// There are no records to tell.
    NotTested,
}

impl Verdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::InPart => "holds in part",
            Verdict::DoesNotHold => "does not hold",
            Verdict::NotTested => "not tested",
        }
    }
}

/// A claim on one data set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnData {
    /// The data set, as in the records.
    pub data: String,
    /// What came of it there.
    pub verdict: Verdict,
    /// Cells that meet the criterion.
    pub passed: usize,
    /// Cells looked at.
    pub cells: usize,
}

/// A claim of the paper, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// A short name that stays.
    pub id: &'static str,
    /// The claim, in our words.
    pub claim: &'static str,
    /// Where the paper makes it.
    pub place: &'static str,
    /// What must be so in every cell, fixed before measuring.
    pub criterion: String,
    /// What came of it, over all data sets.
    pub verdict: Verdict,
    /// The numbers.
    pub measured: String,
    /// Why it does not hold everywhere, where that is known.
    pub why: Option<&'static str>,
    /// What limits the verdict: made-up data in a set's place.
    pub note: Option<String>,
    /// Each data set on its own.
    pub data: Vec<OnData>,
}

/// Every claim of the paper's experiments, in its order.
pub fn claims(results: &Results) -> Vec<Claim> {
    let mut rules: Vec<Rule> = sketch::rules(results);
    rules.extend(quality::rules(results));
    rules.extend(time::rules(results));
    rules.into_iter().map(Rule::judge).collect()
}
