//! The tables of streams that change: MAP with its standard error, recall, rows encoded, versions.

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
    let of = |r: &&Record| r.experiment == "streams" && r.data == data && r.bits == Some(length);
    let records: Vec<&Record> = results.records.iter().filter(of).collect();
    let mut rows = String::new();
    for method in methods(records.iter().copied()) {
        let own: Vec<&Record> = records.iter().filter(|r| r.method == method).copied().collect();
        let mean = |measure: fn(&Record) -> Option<f64>| {
            let values: Vec<f64> = own.iter().filter_map(|r| measure(r)).collect();
            let finite = values.iter().all(|v| v.is_finite()) && !values.is_empty();
            finite.then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
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
