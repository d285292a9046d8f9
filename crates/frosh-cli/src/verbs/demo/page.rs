//! The demonstration's page: one self-contained HTML file with a picture of quality against training time.

use super::Outcome;
use crate::output::{count, seconds};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 56.0;
/// Okabe and Ito's colours, which everybody can tell apart.
const COLOURS: [&str; 4] = ["#E69F00", "#56B4E9", "#009E73", "#CC79A7"];

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
    format!(
        "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>frosh demo</title>
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<style>
:root {{ color-scheme: light dark; --ink: #222; --faint: #bbb; --ground: #fff }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #ddd; --faint: #555; --ground: #181818 }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
       max-width: 50rem; margin: 2rem auto; padding: 0 1rem }}
svg {{ width: 100%; height: auto }} svg text {{ fill: var(--ink); font: 13px system-ui, sans-serif }}
.axis {{ stroke: var(--ink) }} .grid {{ stroke: var(--faint); stroke-dasharray: 2 4 }}
.scroll {{ overflow-x: auto }} table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--faint); white-space: nowrap }}
th:nth-child(-n+2), td:nth-child(-n+2) {{ text-align: left }} code {{ overflow-wrap: anywhere }}
</style></head><body>
<h1>Quality against training time</h1>
<p>{} made-up vectors, clustered, with a power-law spectrum, in {bits} bits ({} bytes each). Up and to the
left is better: the same neighbours, learned sooner.</p>
{}
<div class=\"scroll\"><table><tr><th>method</th><th></th><th>training</th><th>rows/s</th><th>MAP</th><th>recall@10</th>
<th>reranked</th></tr>
{table}</table></div>
<p>MAP counts the nearest 2 % as relevant. DFROSH's time is that of its slowest worker and the merge.
Reranked: the best candidates by code, put in exact order with the vectors.</p>
<p>Next, with your own data: <code>frosh train YOUR.npy --bits {bits} -o model.frosh</code></p>
</body></html>
",
        count(rows as u64),
        bits.div_ceil(8),
        picture(outcomes)
    )
}

/// MAP over training time, which is on a logarithmic scale.
fn picture(outcomes: &[Outcome]) -> String {
    let times: Vec<f64> = outcomes.iter().map(|o| o.seconds.max(1e-6).log10()).collect();
    let low = times.iter().copied().fold(f64::INFINITY, f64::min).floor();
    let high = times.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil().max(low + 1.0);
    let top = outcomes.iter().map(|o| o.map).fold(0.0, f64::max);
    let top = ((top * 1.15 * 10.0).ceil() / 10.0).clamp(0.1, 1.0);
    let x = |t: f64| LEFT + (t - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let y = |v: f64| HEIGHT - BOTTOM - v / top * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"MAP against training time\">\n"
    );
    let (floor, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for decade in low as i32..=high as i32 {
        let at = x(decade.into());
        let label = if decade < 0 {
            format!("{} ms", 10f64.powi(decade + 3))
        } else {
            format!("{} s", 10f64.powi(decade))
        };
        svg += &format!(
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{floor}\"/>\n"
        );
        svg += &format!(
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>\n",
            floor + 18.0
        );
    }
    for tenth in 0..=(top * 10.0).round() as u32 {
        let value = f64::from(tenth) / 10.0;
        let at = y(value);
        svg += &format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\n"
        );
        svg += &format!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.1}</text>\n",
            LEFT - 8.0,
            at + 4.0
        );
    }
    svg += &format!("<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{floor}H{right}\"/>\n");
    svg += &format!(
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">training time (logarithmic)</text>\n",
        (LEFT + right) / 2.0,
        HEIGHT - 12.0
    );
    svg += &format!(
        "<text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">MAP</text>\n",
        (TOP + floor) / 2.0
    );
    for (i, (o, t)) in outcomes.iter().zip(&times).enumerate() {
        let (cx, cy) = (x(*t), y(o.map));
        // A label goes above its point, or below where another's is already above nearby.
        let near =
            |j: usize| (x(times[j]) - cx).abs() < 90.0 && (y(outcomes[j].map) - cy).abs() < 40.0;
        let below = (0..i).any(near);
        svg += &format!(
            "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"7\" fill=\"{}\"/>\n",
            COLOURS[i % 4]
        );
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
            cx.clamp(LEFT + 30.0, WIDTH - 40.0),
            if below { cy + 22.0 } else { cy - 13.0 },
            o.name
        );
    }
    svg + "</svg>"
}
