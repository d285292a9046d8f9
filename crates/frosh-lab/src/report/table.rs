//! Table 2 as a table: seconds of training with their ratio to FROSH's, beside the paper's seconds with theirs.

use crate::paper;
use crate::results::Results;
use crate::summary::{self, Cell, cells};
use crate::text::{count, escape, factor, sig};

/// The tables, one for each data set; empty if nothing was measured.
pub(super) fn times(results: &Results) -> String {
    let all = cells(results, "train-time", |r| r.seconds);
    let tables = summary::data_sets(all.iter().map(|c| c.of)).into_iter().map(|data| {
        let of_data: Vec<&Cell> = all.iter().filter(|c| c.of.data == data).collect();
        table(data, &of_data)
    });
    tables.collect()
}

fn table(data: &str, cells: &[&Cell]) -> String {
    let lengths = summary::bits(cells.iter().map(|c| c.of));
    let set = paper::set(data);
    let mut html = format!(
        "<div class=\"scroll\"><table class=\"numbers\"><caption>{} <span class=\"soft\">n = {}, \
         d = {}</span></caption>\n\
         <thead><tr><th rowspan=\"2\">method</th>",
        escape(&paper::label(data)),
        count(cells.iter().map(|c| c.of.rows).max().unwrap_or(0)),
        count(cells.iter().map(|c| c.of.dim).max().unwrap_or(0)),
    );
    for bits in &lengths {
        html += &format!("<th colspan=\"4\" class=\"group\">{bits} bits</th>");
    }
    html += "</tr>\n<tr>";
    for _ in &lengths {
        html += "<th class=\"group\">here, s</th><th>ratio</th><th>paper, s</th><th>ratio</th>";
    }
    html += "</tr></thead>\n<tbody>\n";
    for method in summary::methods(cells.iter().map(|c| c.of)) {
        html += &format!("<tr><th scope=\"row\">{}</th>", escape(summary::method_label(method)));
        for &bits in &lengths {
            let measured = |m: &str| {
                cells
                    .iter()
                    .rev()
                    .find(|c| c.of.method == m && c.of.bits == Some(bits))
                    .map(|c| c.mean)
            };
            let printed = |m: &str| set.and_then(|s| paper::seconds(s, m, bits));
            let ratio = |a: Option<f64>, b: Option<f64>| {
                a.zip(b).map(|(a, b)| a / b).filter(|r| r.is_finite()).map_or("–".into(), factor)
            };
            html += &format!(
                "<td class=\"group\">{}</td><td><b>{}</b></td><td class=\"soft\">{}</td><td \
                 class=\"soft\">{}</td>",
                measured(method).map_or("–".into(), sig),
                ratio(measured(method), measured("FROSH")),
                printed(method).map_or("–".into(), sig),
                ratio(printed(method), printed("FROSH")),
            );
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}
