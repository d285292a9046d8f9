//! The tables of streams that change: MAP with its standard error, recall, rows encoded, versions.
//! On the page there is a table for each stream; the summary has one table with MAP and rows encoded.

use crate::results::{Record, Results};
use crate::summary::{bits, cells, data_sets, methods};
use crate::text::{escape, sig};

/// One table for each stream and code length.
pub(super) fn tables(results: &Results) -> String {
    let all = cells(results, "streams", |r| r.map);
    let mut html = String::new();
    for data in data_sets(all.iter().map(|c| c.of)) {
        for length in bits(all.iter().map(|c| c.of).filter(|r| r.data == data)) {
            html += &table(results, data, length);
        }
    }
    html
}

fn table(results: &Results, data: &str, length: u32) -> String {
    let records = records_of(results, data, length);
    let mut rows = String::new();
    for method in methods(records.iter().copied()) {
        let own: Vec<&Record> = records.iter().filter(|r| r.method == method).copied().collect();
        let mean = |measure: fn(&Record) -> Option<f64>| mean(&own, measure);
        let show = |value: Option<f64>| value.map_or("–".into(), sig);
        rows += &format!(
            "<tr><th scope=\"row\">{}</th><td><b>{}</b></td><td class=\"soft\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escape(method),
            show(mean(|r| r.map)),
            show(mean(|r| r.map_error)),
            show(mean(|r| r.recall)),
            show(mean(|r| r.encoded)),
            show(mean(|r| r.versions.map(f64::from))),
        );
    }
    format!(
        "<div class=\"scroll\"><table class=\"numbers\"><caption>{} <span class=\"soft\">{length} bits</span></caption>\n\
         <thead><tr><th>method</th><th>MAP</th><th>standard error over queries</th><th>recall@10</th>\
         <th>rows encoded for each</th><th>versions</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n",
        escape(data)
    )
}

/// The measurements of one stream.
fn records_of<'a>(results: &'a Results, data: &str, length: u32) -> Vec<&'a Record> {
    let of = |r: &&Record| r.experiment == "streams" && r.data == data && r.bits == Some(length);
    results.records.iter().filter(of).collect()
}

/// The mean of a measure over repeats; none if any is missing or not finite.
fn mean(records: &[&Record], measure: fn(&Record) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = records.iter().filter_map(|r| measure(r)).collect();
    let finite = values.iter().all(|v| v.is_finite()) && !values.is_empty();
    finite.then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// A table in Markdown for each code length: streams down, methods across. `plain` makes text safe for Markdown. Empty if
/// no stream was measured.
pub(super) fn summary(results: &Results, plain: fn(&str) -> String) -> String {
    let all = cells(results, "streams", |r| r.map);
    let mut text = String::new();
    for length in bits(all.iter().map(|c| c.of)) {
        let methods = methods(all.iter().map(|c| c.of).filter(|r| r.bits == Some(length)));
        let names: String = methods.iter().map(|m| format!("| {} ", plain(m))).collect();
        text += &format!(
            "\nStreams that change: MAP by estimated distance ± its standard error over the queries, and in brackets how often \
             a row was encoded:\n\n| {length} bits {names}|\n|---{}|\n",
            "|--:".repeat(methods.len())
        );
        for data in data_sets(all.iter().map(|c| c.of)) {
            let records = records_of(results, data, length);
            let cell = |method: &&str| {
                let own: Vec<&Record> =
                    records.iter().filter(|r| r.method == **method).copied().collect();
                let show = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:.3}"));
                let encoded = mean(&own, |r| r.encoded).map_or("-".into(), |v| format!("{v:.1}"));
                let (map, error) = (mean(&own, |r| r.map), mean(&own, |r| r.map_error));
                format!("| {} ± {} ({encoded}) ", show(map), show(error)).replace(" 0.", " .")
            };
            let cells: String = methods.iter().map(cell).collect();
            text += &format!("| {} {cells}|\n", plain(data));
        }
    }
    text
}
