//! The page's sentences, with their numbers taken from records.

use super::figures::FIGURES;
use crate::claims::{Claim, Verdict};
use crate::paper;
use crate::results::Results;
use crate::summary::{Cell, ITQ, Measure, bits, cells, data_sets, median, methods, pairs};
use crate::text::{count, duration, escape, factor, list, sig};

/// What was run, and the few numbers that matter most.
pub(super) fn summary(results: &Results, claims: &[Claim]) -> String {
    let run = &results.run;
    let mut html = String::new();
    if results.records.is_empty() {
        return "<p class=\"missing\">There are no records yet: nothing was measured.</p>\n".into();
    }
    let used: Vec<_> =
        results.records.iter().filter(|r| FIGURES.iter().any(|f| f.2 == r.experiment)).collect();
    let names: Vec<String> =
        data_sets(used.iter().copied()).into_iter().map(paper::label).collect();
    html += &format!(
        "<p>{} measurements of {} methods on {} data sets ({}){}.",
        count(used.len() as u64),
        methods(used.iter().copied()).iter().filter(|m| **m != ITQ).count(),
        names.len(),
        escape(&list(&names)),
        if run.seconds > 0.0 { format!(", in {}", duration(run.seconds)) } else { String::new() }
    );
    if run.quick {
        html += " <strong>Sizes were reduced</strong>, so this shows that everything runs; it is \
         not the paper’s setting.";
    }
    if run.no_rotation {
        html += " Codes were made without any rotation, as Algorithm 1 is printed.";
    }
    let others = results.records.len() - used.len();
    if others > 0 {
        html += &format!(" {} records of other experiments are not shown.", count(others as u64));
    }
    html += "</p>\n";
    let missing: Vec<&str> = FIGURES
        .iter()
        .filter(|f| results.records.iter().all(|r| r.experiment != f.2))
        .map(|f| f.1.split('.').next().unwrap_or(f.1))
        .collect();
    if !missing.is_empty() {
        html += &format!("<p class=\"missing\">Not run: {}.</p>\n", list(&missing));
    }
    let key: Vec<String> = [
        sentence(results, "train-time", |r| r.seconds, "OSH", "FROSH")
            .map(|r| format!("OSH takes {} times FROSH’s training time", r.times())),
        sentence(results, "train-time", |r| r.seconds, "DFROSH", "FROSH").map(|r| {
            format!("DFROSH, with five workers, takes {} of FROSH’s training time", r.plain())
        }),
        sentence(results, "bits", |r| r.map, "FROSH", "OSH")
            .map(|r| format!("FROSH’s MAP is {} of OSH’s", r.plain())),
        sentence(results, "bits", |r| r.map, "FROSH", "LSH")
            .map(|r| format!("FROSH’s MAP is {} times LSH’s", r.times())),
        sentence(results, "sketch", |r| r.relative_error, "FFD", "FD")
            .map(|r| format!("FFD’s error is {} times FD’s", r.times())),
        sentence(results, "sketch", |r| r.seconds, "FD", "FFD")
            .map(|r| format!("FD takes {} times FFD’s time", r.times())),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !key.is_empty() {
        html += "<p>In the median over cells, with the range:</p>\n<ul>\n";
        key.iter().for_each(|k| html += &format!("<li>{k}.</li>\n"));
        html += "</ul>\n";
    }
    let of = |v| claims.iter().filter(|c| c.verdict == v).count();
    html += &format!(
        "<p>Of the paper’s {} claims, {} hold here, {} hold in part, {} do not hold, and {} could \
         not be tested.</p>\n",
        claims.len(),
        of(Verdict::Holds),
        of(Verdict::InPart),
        of(Verdict::DoesNotHold),
        of(Verdict::NotTested)
    );
    html
}

/// Ratios of two methods over cells.
struct Ratios {
    middle: f64,
    low: f64,
    high: f64,
}

impl Ratios {
    fn of(cells: &[Cell], first: &str, second: &str) -> Option<Self> {
        let all: Vec<f64> = pairs(cells, first, second).into_iter().map(|p| p.1).collect();
        Some(Ratios {
            low: all.iter().copied().reduce(f64::min)?,
            high: all.iter().copied().reduce(f64::max)?,
            middle: median(all)?,
        })
    }

    fn show(&self, number: impl Fn(f64) -> String) -> String {
        let (middle, low, high) = (number(self.middle), number(self.low), number(self.high));
        if low == high { middle } else { format!("{middle} ({low} to {high})") }
    }

    fn times(&self) -> String {
        self.show(factor)
    }

    fn plain(&self) -> String {
        self.show(|v| format!("{:.0} %", v * 100.0))
    }
}

fn sentence(
    results: &Results,
    experiment: &str,
    measure: Measure,
    first: &str,
    second: &str,
) -> Option<Ratios> {
    Ratios::of(&cells(results, experiment, measure), first, second)
}

/// One sentence on what a figure shows; its numbers are computed.
pub(super) fn shows(results: &Results, id: &str) -> String {
    let mut said: Vec<String> = Vec::new();
    match id {
        "figure-2" => {
            let all = cells(results, "sketch", |r| r.relative_error);
            if let Some(r) = Ratios::of(&all, "FFD", "FD") {
                said.push(format!(
                    "FFD’s error is {} times FD’s, in the median over all cells (with the range)",
                    r.times()
                ));
            }
            let below = all.iter().filter(|c| c.of.method == "FFD" && c.of.sketch_rows.is_some());
            let below: Vec<bool> =
                below.map(|c| c.mean <= 2.0 / c.of.sketch_rows.unwrap_or(1) as f64).collect();
            if !below.is_empty() {
                said.push(format!(
                    "it is below 2/l, what FD guarantees, in {} of {} cells",
                    below.iter().filter(|b| **b).count(),
                    below.len()
                ));
            }
        }
        "figure-3" => {
            if let Some(r) = sentence(results, "sketch", |r| r.seconds, "FD", "FFD") {
                said.push(format!(
                    "FD takes {} times FFD’s time, in the median over all cells (with the range)",
                    r.times()
                ));
            }
        }
        "figure-4" => {
            let mut last = cells(results, "rounds", |r| r.map);
            let end = last.iter().filter_map(|c| c.of.round).max();
            last.retain(|c| c.of.round == end);
            if let Some(r) = Ratios::of(&last, "FROSH", "OSH") {
                said.push(format!("After the last round FROSH’s MAP is {} of OSH’s", r.plain()));
            }
            if let Some(r) = Ratios::of(&last, "FROSH", "LSH") {
                said.push(format!(
                    "and {} times LSH’s, in the median over data sets and code \
                 lengths (with the range)",
                    r.times()
                ));
            }
        }
        "figure-5" => said.extend(best(results)),
        "figure-6" => {
            let claims = crate::claims::claims(results);
            let overlap = claims.into_iter().find(|c| c.id == "curves-overlap");
            if let Some(claim) = overlap.filter(|c| c.verdict != Verdict::NotTested) {
                // Its numbers, without what comes of them: that is the table's.
                let numbers = claim.measured.rsplit_once(". ").map_or("", |m| m.0);
                said.push(format!("OSH, FROSH and DFROSH: {}", lower(numbers)));
            }
        }
        _ => {
            if let Some(r) = sentence(results, "train-time", |r| r.seconds, "OSH", "FROSH") {
                let (low, high) = paper::ratios("OSH", "FROSH");
                said.push(format!(
                    "OSH takes {} times FROSH’s time, in the median over cells (with the range); \
                     in the paper {} to {} times",
                    r.times(),
                    factor(low),
                    factor(high)
                ));
            }
            if let Some(r) = sentence(results, "train-time", |r| r.seconds, "DFROSH", "FROSH") {
                said.push(format!("DFROSH takes {} of FROSH’s", r.plain()));
            }
        }
    }
    if said.is_empty() { String::new() } else { escape(&format!("{}.", said.join("; "))) }
}

/// The most accurate method of each data set at its longest code.
fn best(results: &Results) -> Option<String> {
    let all = cells(results, "bits", |r| r.map);
    let mut winners: Vec<(&str, Vec<String>)> = Vec::new();
    for data in data_sets(all.iter().map(|c| c.of)) {
        let here = all.iter().filter(|c| c.of.data == data);
        let longest = bits(here.clone().map(|c| c.of)).last().copied();
        let best = here.filter(|c| c.of.bits == longest).max_by(|a, b| a.mean.total_cmp(&b.mean));
        let Some(best) = best else { continue };
        let on = format!("{} ({})", paper::label(data), sig(best.mean));
        match winners.iter_mut().find(|w| w.0 == best.of.method) {
            Some(winner) => winner.1.push(on),
            None => winners.push((&best.of.method, vec![on])),
        }
    }
    let parts: Vec<String> = winners.iter().map(|(m, on)| format!("{m} on {}", list(on))).collect();
    (!parts.is_empty()).then(|| format!("Highest MAP with the longest codes: {}", parts.join("; ")))
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_lowercase().chain(chars).collect())
}

/// What the marks of a figure mean.
pub(super) fn caption(results: &Results, id: &str) -> String {
    let repeats = if results.run.repeats > 1 {
        " Marks are means over repeats, bands the range from the smallest to the largest."
    } else {
        ""
    };
    let what = match id {
        "figure-2" => {
            "Error: |A′A − B′B|₂ / |A|²<sub>F</sub> of a sketch B of l rows of made-up data A \
             (ten directions of falling \
             strength and noise, as in the paper). m is the number of rows that FFD compresses at \
             a time. All axes are \
             logarithmic."
        }
        "figure-3" => {
            "Seconds of sketching on one thread, for the sketches of Figure 2. All axes are \
             logarithmic."
        }
        "figure-4" => {
            "The data comes in ten parts; after each, the whole base is encoded anew and \
             searched. Panels of one data set \
             share their vertical axis."
        }
        "figure-5" => {
            "PCA, PCA-RR and PCA-ITQ are not in the paper: exact principal components, with no \
             rotation, a random one, and a \
             learned one."
        }
        "figure-6" => {
            "Precision and recall of the nearest codes, pooled over queries, as their number \
             grows. The marks tell curves \
             apart; they are not single measurements."
        }
        _ => {
            "Filled: measured here, as a multiple of FROSH’s time for the same code length (the \
             numbers 32, 64, 128); bars \
             are the range over repeats. Hollow: the same ratio in the paper’s Table 2. Left of \
             the dashed line is faster \
             than FROSH. “+ ITQ” is what a learned rotation adds to OSH, FROSH and DFROSH. In the \
             tables, the paper’s seconds are those of its whole sets on its machine."
        }
    };
    let repeats = match id {
        "table-2" => "",
        "figure-6" if !repeats.is_empty() => " Curves are means over repeats, bands their range.",
        _ => repeats,
    };
    format!("{what}{repeats}")
}

/// How things were measured, and on what.
pub(super) fn how(results: &Results) -> String {
    let mut html = String::from(
        "<p>Times are processor seconds of learning on one thread; making or reading data is not counted, \
         nor is encoding. DFROSH’s time \
         is that of its slowest worker and of the merge, as if its five workers were five \
         machines. The paper’s times were \
         taken in MATLAB on another machine, so only ratios to FROSH’s time are compared.</p>\n\
         <p>MAP is the mean over queries of the average precision of the whole Hamming ranking. \
         Relevant are the 2 % of the \
         base that are nearest by Euclidean distance. Ties, which Hamming distances are full of, \
         count by their expectation \
         over random order. The paper describes an area under the precision-recall curve, which \
         is close but not equal, so \
         values are not comparable to its figures; relations between methods are.</p>\n\
         <p>OCH-style is our own version of Ordinal Constraint Hashing after its published \
         description; it is not the \
         authors’ program.</p>\n",
    );
    html += if results.run.no_rotation {
        "<p>Codes are signs of principal components without a rotation, as Algorithm 1 is \
         printed.</p>\n"
    } else {
        "<p>Codes of OSH, FROSH and DFROSH are turned as frosh does by default, by a rotation \
         that is learned on a sample of \
         rows (ITQ); Algorithm 1 is printed without one. What that costs is seen by PCA, exact \
         components without a rotation, beside PCA-RR and PCA-ITQ in Figure 5. The rotation of \
         training times \
         is random, which costs next to nothing; what the learned one adds is shown apart, as “+ \
         ITQ”. It does not depend on \
         the number of rows. The sketch has l = 2r rows and FROSH’s blocks m = 4d, to a power of \
         two, or fewer where the \
         data would not fill eight of these.</p>\n"
    };
    let names = data_sets(&results.records);
    let stand_ins: Vec<String> = names
        .iter()
        .filter(|n| paper::is_stand_in(n))
        .map(|n| paper::label(n).replace(" (stand-in)", ""))
        .collect();
    if stand_ins.is_empty() {
        html += "<p>No data set was replaced by a stand-in.</p>\n";
    } else {
        html += &format!(
            "<p><strong>Stand-ins.</strong> {} could not be had. In {} place stands made-up data \
             with clusters and a \
             power-law spectrum, of the size shown, marked “(stand-in)” everywhere. Times depend \
             on the size, hardly on the values; \
             accuracy on the real set may differ.</p>\n",
            escape(&list(&stand_ins)),
            if stand_ins.len() == 1 { "its" } else { "their" }
        );
    }
    html
}
