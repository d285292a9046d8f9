//! The page: what was run, the paper's claims and what came of them, its figures and its table.
//!
//! It has the paper's Figures 2 to 6 and Table 2 in the paper's order. Where we differ: claims come first, each with the
//! criterion it was judged by; ranges over repeats are drawn; times are compared by their ratios.
//!
//! The page is one file: SVG inside, no script, nothing fetched. Colours follow the reader's choice of light or dark,
//! panels wrap, tables scroll in their place, and it prints. It is made from any records, none too: what is
//! missing is said. Time and memory are linear in the records and in the page.

mod figures;
mod table;
mod words;

#[cfg(test)]
mod browser;
#[cfg(test)]
mod tests;

pub(crate) use figures::{swept, with_m};

use crate::claims::{Claim, Verdict, claims};
use crate::plot;
use crate::results::Results;
use crate::text::{count, duration, escape};
use figures::FIGURES;

const CSS: &str = include_str!("page.css");

/// The page, as HTML.
pub fn page(results: &Results) -> String {
    let claims = claims(results);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>frosh: the paper’s experiments, run again</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{}{CSS}</style>\n</head>\n<body>\n<main>\n",
        plot::CSS
    );
    html += "<header><h1>Making Online Sketching Hashing Even Faster: its experiments, run \
     again</h1></header>\n";
    html += &format!(
        "<section id=\"summary\">\n<h2>Summary</h2>\n{}",
        words::summary(results, &claims)
    );
    html += &format!("{}</section>\n", tally(&claims));
    html += &claims_section(&claims);
    for (id, title, experiment) in FIGURES {
        html += &figure_section(results, id, title, experiment);
    }
    html += &method_section(results);
    html + "</main>\n</body>\n</html>\n"
}

/// The figures as files: (name, SVG), only those that have records.
pub fn figures(results: &Results) -> Vec<(String, String)> {
    let figures = FIGURES.iter().filter_map(|(id, ..)| figures::figure(results, id));
    figures.map(|f| (format!("{}.svg", f.id), f.file())).collect()
}

/// How many claims came out how.
fn tally(claims: &[Claim]) -> String {
    let mut html = String::from("<ul class=\"tally\">\n");
    for verdict in [Verdict::Holds, Verdict::InPart, Verdict::DoesNotHold, Verdict::NotTested] {
        let n = claims.iter().filter(|c| c.verdict == verdict).count();
        html += &format!("<li>{} <b>{n}</b></li>\n", badge(verdict));
    }
    html + "</ul>\n"
}

fn badge(verdict: Verdict) -> String {
    let (class, sign) = match verdict {
        Verdict::Holds => ("yes", "✓"),
        Verdict::InPart => ("part", "◐"),
        Verdict::DoesNotHold => ("no", "✗"),
        Verdict::NotTested => ("none", "–"),
    };
    // The sign and the words carry it, not the colour alone.
    format!(
        "<span class=\"badge {class}\"><span aria-hidden=\"true\">{sign}</span> {}</span>",
        verdict.text()
    )
}

fn claims_section(claims: &[Claim]) -> String {
    let mut html = String::from(
        "<section id=\"claims\">\n<h2>The paper’s claims</h2>\n\
         <p>Each claim of the paper’s experiments, in our words, with a criterion that was \
         written into the program before \
         anything was measured. A cell is one data set, code length, round or point of a sweep, \
         averaged over repeats. A \
         claim holds if all of its cells meet the criterion, and in part if some do.</p>\n\
         <div class=\"scroll\"><table class=\"claims\">\n\
         <thead><tr><th>claim</th><th>criterion for each \
         cell</th><th>measured</th><th>verdict</th></tr></thead>\n<tbody>\n",
    );
    for claim in claims {
        let further = [claim.why.map(String::from), claim.note.clone()];
        let further: String = further
            .iter()
            .flatten()
            .map(|t| format!(" <span class=\"soft\">{}</span>", escape(t)))
            .collect();
        html += &format!(
            "<tr id=\"claim-{}\"><td data-name=\"claim\">{} <span class=\"soft place\">{}</span></td>\
             <td data-name=\"criterion\">{}</td><td \
             data-name=\"measured\">{}{further}</td><td>{}</td></tr>\n",
            claim.id,
            escape(claim.claim),
            escape(claim.place),
            escape(&claim.criterion),
            escape(&claim.measured),
            badge(claim.verdict)
        );
    }
    html + "</tbody></table></div>\n</section>\n"
}

fn figure_section(results: &Results, id: &str, title: &str, experiment: &str) -> String {
    let mut html = format!("<section id=\"{id}\" class=\"figure\">\n<h2>{title}</h2>\n");
    match figures::figure(results, id) {
        Some(figure) => {
            html += &format!("<p>{}</p>\n<figure>\n", words::shows(results, id));
            html += &figure.html();
            html +=
                &format!("<figcaption>{}</figcaption>\n</figure>\n", words::caption(results, id));
        }
        None => {
            html += &format!(
                "<p class=\"missing\">Not here: there are no records of the experiment \
                 <code>{experiment}</code> that \
                 could be drawn.</p>\n"
            );
        }
    }
    if id == "table-2" {
        html += &table::times(results);
    }
    html + "</section>\n"
}

/// Settings, machine, how times were taken, and how to run it again.
fn method_section(results: &Results) -> String {
    let run = &results.run;
    let machine = &run.machine;
    let known = |text: &str| if text.is_empty() { "not recorded".into() } else { escape(text) };
    let number = |n: u64| if n == 0 { "not recorded".into() } else { count(n) };
    let memory = match machine.memory {
        0 => "not recorded".into(),
        bytes => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    };
    let rows = [
        ("processor", known(&machine.cpu)),
        ("cores", number(machine.cores as u64)),
        ("memory", memory),
        ("system", known(&machine.system)),
        ("version of frosh", known(&run.version)),
        ("sizes", if run.quick { "reduced (quick)" } else { "full" }.into()),
        (
            "rotation of codes",
            if run.no_rotation {
                "none, as Algorithm 1 is printed"
            } else {
                "learned (ITQ), as frosh has it by default"
            }
            .into(),
        ),
        ("repeats of a cell, at most", number(run.repeats.into())),
        ("queries of an evaluation", number(run.queries.into())),
        ("records", count(results.records.len() as u64)),
        ("time of the whole run", escape(&duration(run.seconds))),
    ];
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n"))
        .collect();
    let command = if run.command.is_empty() {
        "<p class=\"missing\">The command was not recorded.</p>".into()
    } else {
        format!("<pre class=\"scroll\"><code>{}</code></pre>", escape(&run.command))
    };
    format!(
        "<section id=\"how\">\n<h2>How it was measured</h2>\n{}\n<h3>Settings and machine</h3>\n\
         <div class=\"scroll\"><table class=\"settings\"><tbody>\n{rows}</tbody></table></div>\n\
         <h3>To run it again</h3>\n{command}\n</section>\n",
        words::how(results)
    )
}
