//! The page, and its summary as Markdown: the paper's claims and what came of them, its figures and its table.
//!
//! `page.html` is the page's text; what depends on results is filled in here. Where we differ from the paper: claims come
//! first, each with the criterion it was judged by; ranges over repeats are drawn; times are compared by their ratios.
//!
//! The page is one file: SVG inside, no script, nothing fetched. Colours follow the reader's choice of light or dark,
//! panels wrap, tables scroll in their place, and it prints. It is made from any records, none too: what is missing is
//! said.

mod figures;
mod findings;
mod readme;
mod streams;

#[cfg(test)]
mod browser;
#[cfg(test)]
mod tests;

pub use readme::readme;

use crate::claims::{Claim, Outcome, Verdict, claims, tally};
use crate::paper;
use crate::plot;
use crate::results::Results;
use crate::summary::{Cell, bits, cells, data_sets, methods, range};
use crate::text::{count, duration, escape, factor, list, sig};
use figures::{FIGURES, Figure};
use findings::findings;

const CSS: &str = include_str!("page.css");

/// The page, as HTML.
pub fn page(results: &Results) -> String {
    let claims = claims(results);
    let mut parts = vec![
        ("css", format!("{}{CSS}", plot::CSS)),
        ("summary", summary(results, &claims)),
        ("claims", claims.iter().map(claim_row).collect()),
        ("times", time_tables(results)),
        ("stream-tables", streams::tables(results)),
        ("repeats", escape(&repeats(results))),
        ("stand-ins", escape(&stand_ins(results))),
        ("machine", escape(&machine(results))),
        ("command", escape(&results.run.command)),
    ];
    parts.extend(FIGURES.iter().map(|figure| (figure.id, draw(results, figure))));
    let mut template = include_str!("page.html").to_owned();
    if results.only_streams() {
        // Nothing of the paper was run, so its claims and figures are left out.
        let [from, to] =
            ["<section id=\"claims\"", "<section id=\"streams\""].map(|s| template.find(s));
        if let (Some(from), Some(to)) = (from, to) {
            template.replace_range(from..to, "");
        }
    }
    // One pass over the template: what is filled in is not looked at again.
    let mut pieces = template.split("{{");
    let mut html = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, text) = piece.split_once("}}").unwrap_or((piece, ""));
        html += parts.iter().find(|p| p.0 == name).map_or("", |p| &p.1);
        html += text;
    }
    html
}

/// The figures as files: (name, SVG), only those that have records.
pub fn figures(results: &Results) -> Vec<(String, String)> {
    let file = |figure: &Figure| {
        let panels = figure.panels(results);
        let name = format!("{}.svg", figure.id);
        (!panels.is_empty()).then(|| (name, plot::file(&figure.name(), &panels, figure.columns)))
    };
    FIGURES.iter().filter_map(file).collect()
}

/// What was run, the few numbers that matter most, and how many claims came out how.
fn summary(results: &Results, claims: &[Claim]) -> String {
    if results.records.is_empty() {
        return "<p class=\"missing\">There are no records yet: nothing was measured.</p>\n".into();
    }
    let run = &results.run;
    let names: Vec<String> = data_sets(&results.records).into_iter().map(paper::label).collect();
    let mut html = format!(
        "<p>{} measurements of {} methods on {} data sets ({}), in {}.",
        count(results.records.len() as u64),
        methods(&results.records).len(),
        names.len(),
        escape(&list(&names)),
        duration(run.seconds)
    );
    if run.quick {
        html += " <strong>Sizes were reduced</strong> below the paper’s: this shows that everything runs, and is too \
            small to judge the claims.";
    }
    if run.no_rotation {
        html += " Codes were made without any rotation, as Algorithm 1 is printed.";
    }
    html += "</p>\n";
    let missing = FIGURES.iter().filter(|f| f.panels(results).is_empty());
    let missing: Vec<String> = missing.map(Figure::name).collect();
    if !missing.is_empty() {
        html += &format!("<p class=\"missing\">Not run: {}.</p>\n", list(&missing));
    }
    let lines =
        findings(results).into_iter().map(|(_, line)| format!("<li>{}</li>\n", escape(&line)));
    html += &format!(
        "<p>Medians over cells, with the range:</p>\n<ul>\n{}</ul>\n",
        lines.collect::<String>()
    );
    if results.only_streams() {
        return html;
    }
    html += &format!(
        "<p>Of the paper’s {} claims:</p>\n<table class=\"tally\"><tbody>\n",
        claims.len()
    );
    html += "<tr><th></th><th>real data</th><th>stand-ins</th></tr>\n";
    for (verdict, real, made) in tally(claims) {
        html += &format!("<tr><td>{}</td><td>{real}</td><td>{made}</td></tr>\n", badge(verdict));
    }
    html + "</tbody></table>\n"
}

fn badge(verdict: Verdict) -> String {
    let (class, sign) = match verdict {
        Verdict::Holds => ("yes", "✓"),
        Verdict::HoldsInMost => ("yes", "◕"),
        Verdict::InPart => ("part", "◐"),
        Verdict::DoesNotHold => ("no", "✗"),
        Verdict::NotTested | Verdict::TooSmall => ("none", "–"),
    };
    // The sign and the words carry it, not the colour alone.
    format!(
        "<span class=\"badge {class}\"><span aria-hidden=\"true\">{sign}</span> {}</span>",
        verdict.text()
    )
}

fn claim_row(claim: &Claim) -> String {
    let notes = claim.notes.iter().map(|n| format!(" <span class=\"soft\">{}</span>", escape(n)));
    let outcome = |name: &str, o: Outcome| {
        let share = if o.cells > 0 { format!(", {}/{}", o.passed, o.cells) } else { String::new() };
        format!("{}<span class=\"soft place\">{name}{share}</span>", badge(o.verdict))
    };
    format!(
        "<tr id=\"claim-{}\"><td>{} <span class=\"soft place\">{}</span></td>\
         <td data-name=\"criterion\">{}</td><td data-name=\"measured\">{}{}</td><td>{}{}</td></tr>\n",
        claim.id,
        escape(claim.claim),
        escape(claim.place),
        escape(&claim.criterion),
        escape(&claim.measured),
        notes.collect::<String>(),
        outcome("real data", claim.real),
        claim.stand_ins.map_or(String::new(), |o| outcome("stand-ins", o))
    )
}

/// What a figure shows, and its panels.
fn draw(results: &Results, figure: &Figure) -> String {
    let panels = figure.panels(results);
    if panels.is_empty() {
        return format!(
            "<p class=\"missing\">Not here: there are no records of the experiment <code>{}</code> that could be \
             drawn.</p>\n",
            figure.experiment
        );
    }
    let said = findings(results).into_iter().filter(|f| f.0 == figure.id);
    let said = said.map(|f| f.1).collect::<Vec<_>>().join(" ");
    format!("<p>{}</p>\n{}", escape(&said), plot::html(&panels, figure.columns))
}

/// Table 2, one table for each data set.
fn time_tables(results: &Results) -> String {
    let times = cells(results, "train-time", |r| r.seconds);
    let whole = cells(results, "whole-training", |r| r.seconds);
    let table = |data: &str| {
        let first = times.iter().find(|c| c.of.data == data);
        let (rows, dim) = first.map_or((0, 0), |c| (c.of.rows, c.of.dim));
        let lengths = bits(times.iter().map(|c| c.of).filter(|r| r.data == data));
        let groups =
            lengths.iter().map(|b| format!("<th colspan=\"4\" class=\"group\">{b} bits</th>"));
        format!(
            "<div class=\"scroll\"><table class=\"numbers\"><caption>{} <span class=\"soft\">n = {}, d = {}</span>\
             </caption>\n<thead><tr><th rowspan=\"2\">method</th>{}</tr>\n<tr>{}</tr></thead>\n<tbody>\n{}{}</tbody>\
             </table></div>\n",
            escape(&paper::label(data)),
            count(rows),
            count(dim),
            groups.collect::<String>(),
            "<th class=\"group\">here, s</th><th>ratio</th><th>paper, s</th><th>ratio</th>"
                .repeat(lengths.len()),
            time_rows(&times, data, &lengths, ""),
            time_rows(&whole, data, &lengths, ", whole training")
        )
    };
    data_sets(times.iter().map(|c| c.of)).into_iter().map(table).collect()
}

/// Seconds and their ratio to FROSH's, beside the paper's, which are without a learned rotation.
fn time_rows(cells: &[Cell], data: &str, lengths: &[u32], suffix: &str) -> String {
    let here: Vec<&Cell> = cells.iter().filter(|c| c.of.data == data).collect();
    let mut html = String::new();
    for method in methods(here.iter().map(|c| c.of)) {
        html += &format!("<tr><th scope=\"row\">{}{suffix}</th>", escape(method));
        for &bits in lengths {
            let cell = |m: &str| here.iter().find(|c| c.of.method == m && c.of.bits == Some(bits));
            let own = |m: &str| cell(m).map(|c| c.mean);
            let paper =
                |m: &str| paper::seconds(paper::set(data)?, m, bits).filter(|_| suffix.is_empty());
            let ratio =
                |a: Option<f64>, b: Option<f64>| factor(a.zip(b).map_or(f64::NAN, |(a, b)| a / b));
            let seconds = cell(method).map(|c| format!("{} ({})", sig(c.mean), c.repeats));
            html += &format!(
                "<td class=\"group\">{}</td><td><b>{}</b></td><td class=\"soft\">{}</td><td class=\"soft\">{}</td>",
                seconds.unwrap_or("–".into()),
                ratio(own(method), own("FROSH")),
                sig(paper(method).unwrap_or(f64::NAN)),
                ratio(paper(method), paper("FROSH")),
            );
        }
        html += "</tr>\n";
    }
    html
}

/// How often the cells of each experiment were repeated.
fn repeats(results: &Results) -> String {
    let mut experiments: Vec<&str> =
        results.records.iter().map(|r| r.experiment.as_str()).collect();
    experiments.sort_unstable();
    experiments.dedup();
    let one = |experiment: &&str| {
        let all = cells(results, experiment, |r| r.map.or(r.seconds).or(r.relative_error));
        let (low, high) = range(all.iter().map(|c| c.repeats as f64))?;
        let times = if low == high { format!("{low}") } else { format!("{low} to {high}") };
        Some(format!("{times} for {experiment}"))
    };
    let each: Vec<String> = experiments.iter().filter_map(one).collect();
    if each.is_empty() { "none yet".into() } else { list(&each) }
}

/// Which data sets are not the paper's.
fn stand_ins(results: &Results) -> String {
    let names = data_sets(&results.records).into_iter().filter(|n| paper::is_stand_in(n));
    let names: Vec<String> = names.map(|n| paper::label(n).replace(" (stand-in)", "")).collect();
    match names.as_slice() {
        [] => "No data set was replaced by a stand-in.".into(),
        names => format!(
            "Not at hand: {}. Made-up data with clusters and a power-law spectrum, of the size shown, stands in, marked \
             “(stand-in)” everywhere. Times depend on the size, hardly on the values; accuracy on the real set may differ.",
            list(names)
        ),
    }
}

/// The machine and the settings, as far as they were recorded.
fn machine(results: &Results) -> String {
    let (run, machine) = (&results.run, &results.run.machine);
    let memory = machine.memory as f64 / f64::from(1 << 30);
    format!(
        "Machine: {}, {} cores, {memory:.1} GiB, {}. frosh {}, {} queries of each evaluation, at most {} repeats of a cell.",
        machine.cpu,
        machine.cores,
        machine.system,
        run.version,
        count(run.queries.into()),
        run.repeats
    )
}
