use super::*;
use crate::results::Record;
use crate::sample;

const VOID: [&str; 2] = ["meta", "link"];

/// Every tag closed in order, every attribute quoted, no stray markup: enough for what we write.
fn well_formed(text: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.strip_prefix("<!doctype html>").unwrap_or(text);
    while let Some(start) = rest.find('<') {
        // Style sheets are text in HTML; their quotes and signs are not markup.
        if open.last() == Some(&"style") && !rest[start..].starts_with("</style>") {
            return Err("markup in a style sheet".into());
        }
        let before = &rest[..start];
        let style = open.last() == Some(&"style");
        if !style && (before.contains('>') || !entities(before)) {
            return Err(format!("stray sign in {before:?}"));
        }
        let mut quoted = false;
        let end = rest[start..].char_indices().find(|(_, c)| {
            quoted ^= *c == '"';
            *c == '>' && !quoted
        });
        let end = start + end.ok_or("a tag without an end")?.0;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if tag.contains('<') || !entities(tag) {
            return Err(format!("markup inside of <{tag}>"));
        }
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            let top = open.pop();
            if top != Some(name) {
                return Err(format!("{top:?} closed by {name}"));
            }
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("left open: {open:?}")) }
}

/// Whether each ampersand begins an entity.
fn entities(text: &str) -> bool {
    let known = ["amp;", "lt;", "gt;", "quot;", "#39;"];
    text.split('&').skip(1).all(|after| known.iter().any(|k| after.starts_with(k)))
}

fn fetches_nothing(text: &str) {
    let text = text.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for bad in ["http:", "https:", "url(", "src=", "@import", "<script", "<iframe", "<object"] {
        assert!(!text.contains(bad), "{bad}");
    }
    for link in text.split("href=\"").skip(1) {
        assert!(link.starts_with("data:,") || link.starts_with('#'), "{}", &link[..20]);
    }
}

#[test]
fn the_checker_sees_what_is_wrong() {
    assert!(well_formed("<a b=\"c\"><d/>x &amp; y</a>").is_ok());
    for bad in ["<a>", "<a></b>", "</a>", "<a>&</a>", "<a>></a>", "<a b=\"<\"/>", "<a"] {
        assert!(well_formed(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_full_page_is_whole() {
    let results = sample::full();
    let page = page(&results);
    well_formed(&page).unwrap();
    fetches_nothing(&page);
    for figure in FIGURES {
        assert!(page.contains(&format!("<section id=\"{}\"", figure.id)), "{}", figure.id);
        assert!(page.contains(&format!("<h2>{}. ", figure.name())));
    }
    assert!(!page.contains("NaN") && !page.contains("inf\"") && !page.contains("{{"));
    assert!(!page.contains("class=\"missing\""));
    // 3 + 3 + 12 + 4 + 4 + 4 + 2 panels.
    assert_eq!(page.matches("role=\"img\"").count(), 32);
    assert!(page.contains("rows encoded for each") && page.contains("mnist by class"));
    for claim in claims(&results) {
        assert!(page.contains(&format!("id=\"claim-{}\"", claim.id)));
    }
}

#[test]
fn figures_are_files_of_their_own() {
    let files = figures(&sample::full());
    let names: Vec<&str> = files.iter().map(|f| f.0.as_str()).collect();
    let expected = [
        "figure-2.svg",
        "figure-3.svg",
        "figure-4.svg",
        "figure-5.svg",
        "figure-6.svg",
        "table-2.svg",
        "streams.svg",
    ];
    assert_eq!(names, expected);
    for (name, svg) in &files {
        well_formed(svg).unwrap_or_else(|e| panic!("{name}: {e}"));
        fetches_nothing(svg);
        assert!(svg.starts_with("<svg xmlns=") && svg.contains("<style>") && !svg.contains("NaN"));
    }
}

#[test]
fn nothing_measured_is_said() {
    let page = page(&Results::default());
    well_formed(&page).unwrap();
    assert!(page.contains("There are no records yet"));
    for Figure { id, experiment, .. } in FIGURES {
        assert!(page.contains(&format!("<section id=\"{id}\"")));
        assert!(page.contains(&format!("<code>{experiment}</code>")));
    }
    assert!(figures(&Results::default()).is_empty());
    assert!(claims(&Results::default()).iter().all(|c| c.real.verdict == Verdict::NotTested));
}

#[test]
fn each_experiment_alone_makes_a_page() {
    let all = sample::full();
    for Figure { experiment, .. } in FIGURES {
        let records: Vec<Record> =
            all.records.iter().filter(|r| r.experiment == experiment).cloned().collect();
        let page = page(&Results { records, run: all.run.clone() });
        well_formed(&page).unwrap();
        assert!(page.contains("Not run: "), "{experiment}");
        assert_eq!(page.contains("<section id=\"claims\""), experiment != "streams");
    }
}

#[test]
fn hostile_names_are_text() {
    let evil = "</title><script>alert('1')</script>&\"\u{0}";
    let mut results = sample::full();
    for record in &mut results.records {
        record.data += evil;
        if record.repeat == 0 {
            record.method += evil;
        }
    }
    let run = &mut results.run;
    let fields =
        [&mut run.command, &mut run.version, &mut run.machine.cpu, &mut run.machine.system];
    fields.into_iter().for_each(|f| *f += evil);
    let page = page(&results);
    well_formed(&page).unwrap();
    fetches_nothing(&page);
    assert!(page.contains("&lt;script&gt;"));
    for (_, svg) in figures(&results) {
        well_formed(&svg).unwrap();
    }
}

#[test]
fn odd_records_do_no_harm() {
    let values = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e308, 5e-324, -0.0, 1e15, 1e-15];
    let mut results = sample::full();
    for (i, r) in results.records.iter_mut().enumerate() {
        let value = values[i % values.len()];
        (r.seconds, r.relative_error) = (r.seconds.map(|_| value), r.relative_error.map(|_| value));
        r.map = r.map.map(|_| value);
        let points = vec![[value; 3], [2.0, 0.5, 0.5], [3.0, value, 0.5]];
        r.returned = r.returned.as_ref().map(|_| points);
        match i % 7 {
            0 => (r.bits, r.round, r.sweep) = (None, None, None),
            1 => (r.rows, r.dim, r.sketch_rows) = (0, 0, None),
            2 => (r.rows, r.dim, r.bits) = (u64::MAX, u64::MAX, Some(u32::MAX)),
            3 => (r.tau, r.method) = (Some(u32::MAX), String::new()),
            4 => (r.data, r.sweep) = (String::new(), Some("x".into())),
            5 => (r.sketch_rows, r.bits) = (Some(0), Some(0)),
            _ => r.round = Some(u32::MAX),
        }
    }
    results.run.seconds = f64::NAN;
    let text = page(&results);
    well_formed(&text).unwrap();
    assert!(!text.contains("NaN") && !readme(&results).contains("NaN"));
    figures(&results).iter().for_each(|(_, svg)| well_formed(svg).unwrap());
    // Each record alone, too: empty ranges, single points.
    for record in results.records.iter().step_by(11) {
        let one = Results { records: vec![record.clone()], ..Results::default() };
        let text = page(&one);
        well_formed(&text).unwrap();
        assert!(!text.contains("NaN"), "{record:?}");
    }
}

#[test]
fn the_summary_keeps_both_times_apart_and_counts_repeats() {
    let results = sample::full();
    let text = readme(&results);
    let row = |of: &str, name: &str| {
        let table = text.split(of).nth(1).unwrap_or_else(|| panic!("no {of}: {text}"));
        let start = format!("| {name} |");
        table.lines().find(|l| l.starts_with(&start)).unwrap_or_else(|| panic!("{name}")).to_owned()
    };
    // Seconds of the sample's records: 0.2 more with the rotation; three repeats each.
    let mean = |experiment: &str| {
        let all = cells(&results, experiment, |r| r.seconds);
        let mnist = |c: &&crate::summary::Cell| {
            c.of.data == "mnist" && c.of.method == "FROSH" && c.x == 64.0
        };
        all.iter().find(mnist).unwrap().mean
    };
    let (paper, whole) = (mean("train-time"), mean("whole-training"));
    assert!((whole - paper - 0.2).abs() < 1e-9);
    assert!(row("as the paper timed it", "FROSH").contains(&format!("{} (3)", sig(paper))));
    assert!(row("Whole training in seconds", "FROSH").contains(&format!("{} (3)", sig(whole))));
    assert!(row("MAP of Hamming", "FROSH").contains(" (3) |"));
    assert_eq!(row("OSH's time / FROSH's", "in the paper").matches(" / ").count(), 8);
    assert!(text.contains("| cannot be tested here | "), "{text}");
    assert!(readme(&Results::default()).contains("Nothing was measured"));
    let streams: Vec<Record> =
        sample::full().records.into_iter().filter(|r| r.experiment == "streams").collect();
    let text = readme(&Results { records: streams, ..Results::default() });
    assert!(text.starts_with("# Streams that change") && text.contains("| versions |"), "{text}");
}

#[test]
fn a_reduced_run_gives_no_verdicts() {
    let mut results = sample::full();
    results.run.quick = true;
    let page = page(&results);
    assert!(page.contains("too small to judge") && !page.contains("does not hold</span>"));
    assert!(claims(&results).iter().all(|c| {
        matches!(c.real.verdict, Verdict::TooSmall | Verdict::NotTested)
            && c.real.passed <= c.real.cells
    }));
}
