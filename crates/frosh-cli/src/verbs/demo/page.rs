//! The demonstration's page: one self-contained HTML file with a picture of quality against training time.

use super::Outcome;
use crate::output::{count, seconds};
use frosh_lab::{PLOT_CSS, scatter};

/// The page.
pub(super) fn page(outcomes: &[Outcome], rows: usize, bits: usize) -> String {
    let table: String = outcomes
        .iter()
        .map(|o| {
            format!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.3}</td><td>{:.3}</td><td>{:.3}</td></tr>\n",
                o.name,
                o.what,
                seconds(o.seconds),
                count(o.rows_per_second as u64),
                o.map,
                o.recall,
                o.reranked
            )
        })
        .collect();
    let points: Vec<_> = outcomes.iter().map(|o| (o.name, o.seconds, o.map)).collect();
    format!(
        "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>frosh demo</title>
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<style>
{PLOT_CSS}:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
       max-width: 50rem; margin: 2rem auto; padding: 0 1rem }}
.panels svg {{ width: 100%; max-width: 32rem; height: auto }}
.legend {{ list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0 }}
.legend li {{ display: flex; align-items: center; gap: .4rem }}
.scroll {{ overflow-x: auto }} table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap }}
th:nth-child(-n+2), td:nth-child(-n+2) {{ text-align: left }} code {{ overflow-wrap: anywhere }}
</style></head><body>
<h1>Quality against training time</h1>
<p>{} made-up vectors, clustered, with a power-law spectrum, in {bits} bits ({} bytes each). Up and to the
left is better: the same neighbours, learned sooner.</p>
{}
<div class=\"scroll\"><table><tr><th>method</th><th></th><th>training</th><th>rows/s</th><th>MAP</th><th>recall@10</th>
<th>reranked</th></tr>
{table}</table></div>
<p>MAP counts the nearest 2 % as relevant. DFROSH's time is that of its slowest worker and the merge. The quantiser
(<code>frosh train --bytes</code>) ranks by estimated distance, the others by Hamming distance.
Reranked: the best candidates by code, put in exact order with the vectors.</p>
<p>Next, with your own data: <code>frosh train YOUR.npy --bits {bits} -o model.frosh</code></p>
</body></html>
",
        count(rows as u64),
        bits.div_ceil(8),
        scatter("training time (s), logarithmic", "MAP", &points)
    )
}
