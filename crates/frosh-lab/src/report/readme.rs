//! The results in short, as Markdown: what the project's documentation shows.

use super::findings::{by_kind, hundredths};
use super::{machine, repeats, stand_ins};
use crate::claims::{claims, tally};
use crate::paper;
use crate::results::Results;
use crate::summary::{Cell, bits, cells, data_sets, methods, ratios};
use crate::text::{factor, list, sig};

/// The code length of the tables, if it was run.
const BITS: u32 = 64;

/// The summary, as Markdown.
pub fn readme(results: &Results) -> String {
    let run = &results.run;
    let map = cells(results, "bits", |r| r.map);
    let time = cells(results, "train-time", |r| r.seconds);
    let whole = cells(results, "whole-training", |r| r.seconds);
    let lengths = bits(map.iter().chain(&time).map(|c| c.of));
    let length = lengths.iter().find(|b| **b == BITS).or(lengths.last()).copied();
    let streams = super::streams::summary(results, plain);
    let title = match results.only_streams() {
        true => "Streams that change",
        false => "The paper's evaluation",
    };
    let mut text = format!(
        "# {title}, {} size\n\n```sh\n{}\n```\n\n\
         [report.html](report.html) is the page (open it in a browser). `results.json` and the CSV files hold every\n\
         measurement,{} the SVG files the page's figures. The command\n\
         writes this file, too.\n\n{}\n\n{} Times are processor seconds on one thread.\n\
         A number in brackets is how many repeats the mean is of; a cell is not repeated once its time is over.\n\
         Repeats: {}.\n",
        if run.quick { "at reduced" } else { "at full" },
        plain(&run.command),
        if results.only_streams() {
            ""
        } else {
            " `claims.json` what became of each claim of the paper,"
        },
        plain(&stand_ins(results)),
        plain(&machine(results)),
        plain(&repeats(results))
    );
    let nothing = if streams.is_empty() { "\nNothing was measured.\n" } else { &streams };
    let Some(length) = length else { return text + nothing };
    let rotation = if run.no_rotation { "no rotation" } else { "the rotation learned (ITQ)" };
    for (title, cells, show) in [
        (
            format!("MAP of Hamming ranking, truth the nearest 2 %, {rotation}"),
            &map,
            (|v| format!("{v:.3}").trim_start_matches('0').to_owned()) as fn(f64) -> String,
        ),
        (
            "Training in seconds as the paper timed it, without a learned rotation".into(),
            &time,
            sig,
        ),
        (
            "Whole training in seconds, with the rotation that MAP is measured with".into(),
            &whole,
            sig,
        ),
    ] {
        text += &table(&title, cells, length, show);
    }
    text += &speed(&time, &whole);
    let at = |cells: &[Cell], first, second, show| {
        let here: Vec<Cell> = cells.iter().filter(|c| c.of.bits == Some(length)).cloned().collect();
        by_kind(&ratios(&here, first, second), show).unwrap_or("not measured".into())
    };
    text += &format!(
        "\nAt {length} bits, medians with the range:\n\n- OSH's training time / FROSH's without a learned rotation: {}\n\
         - OSH's whole training time / FROSH's: {}\n- FROSH's MAP / OSH's: {}\n",
        at(&time, "OSH", "FROSH", factor),
        at(&whole, "OSH", "FROSH", factor),
        at(&map, "FROSH", "OSH", hundredths)
    );
    let claims = claims(results);
    let verdict = |(verdict, real, made): &(crate::Verdict, usize, usize)| {
        format!("| {} | {real} | {made} |\n", verdict.text())
    };
    text += &format!(
        "\nWhat became of the paper's {} claims; the page says which and why:\n\n| | real data | stand-ins |\n|---|--:|--:|\n{}",
        claims.len(),
        tally(&claims).iter().map(verdict).collect::<String>()
    );
    text + &streams
}

/// Methods down, data sets across, with the repeats of each cell.
fn table(title: &str, cells: &[Cell], length: u32, show: fn(f64) -> String) -> String {
    let here: Vec<&Cell> = cells.iter().filter(|c| c.of.bits == Some(length)).collect();
    let sets = data_sets(here.iter().map(|c| c.of));
    if sets.is_empty() {
        return String::new();
    }
    let mut text = head(&format!("\n{title}:\n\n| {length} bits"), &sets);
    for method in methods(here.iter().map(|c| c.of)) {
        let value = |data: &&str| {
            let found = here.iter().find(|c| c.of.method == method && c.of.data == **data);
            found.map_or("-".into(), |c| format!("{} ({})", show(c.mean), c.repeats))
        };
        text += &row(method, sets.iter().map(value).collect());
    }
    text
}

/// How many times FROSH's time OSH takes, for each code length.
fn speed(time: &[Cell], whole: &[Cell]) -> String {
    let sets = data_sets(time.iter().map(|c| c.of));
    let lengths = bits(time.iter().map(|c| c.of));
    let names: Vec<String> = lengths.iter().map(ToString::to_string).collect();
    if sets.is_empty() {
        return String::new();
    }
    let mut text = head(&format!("\nOSH's time / FROSH's, {} bits:\n\n| ", list(&names)), &sets);
    let join = |each: Vec<Option<f64>>| {
        let each = each.into_iter().map(|v| v.map_or("-".into(), factor));
        each.collect::<Vec<String>>().join(" / ")
    };
    for (name, cells) in [("without a learned rotation", time), ("whole training", whole)] {
        let all = ratios(cells, "OSH", "FROSH");
        let on = |data: &&str| {
            let at = |bits: &u32| {
                let here = |f: &&(Cell, f64)| f.0.of.data == **data && f.0.of.bits == Some(*bits);
                all.iter().find(here).map(|f| f.1)
            };
            join(lengths.iter().map(at).collect())
        };
        text += &row(name, sets.iter().map(on).collect());
    }
    let printed = |data: &&str| {
        let of = |bits: &u32| {
            let seconds = |method| paper::seconds(paper::set(data)?, method, *bits);
            Some(seconds("OSH")? / seconds("FROSH")?)
        };
        join(lengths.iter().map(of).collect())
    };
    text + &row("in the paper", sets.iter().map(printed).collect())
}

fn head(first: &str, sets: &[&str]) -> String {
    let names: String = sets.iter().map(|s| format!("| {} ", plain(&paper::label(s)))).collect();
    format!("{first} {names}|\n|---{}|\n", "|--:".repeat(sets.len()))
}

fn row(name: &str, values: Vec<String>) -> String {
    format!("| {} | {} |\n", plain(name), values.join(" | "))
}

/// Text that Markdown takes as text: names may hold anything.
fn plain(text: &str) -> String {
    let safe = |c: char| match c {
        '|' | '<' | '>' | '`' | '[' | ']' | '*' | '\\' => ' ',
        c if c.is_control() => ' ',
        c => c,
    };
    text.chars().map(safe).collect()
}
