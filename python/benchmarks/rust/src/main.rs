//! Learns from a file of raw f32 values that is in memory, and prints the seconds of each run, one for each line.
//!
//! frosh-python-speed FILE DIM SKETCH_ROWS RUNS

use frosh::{Config, Rows, Sketcher};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, dim, sketch_rows, runs] = &arguments[..] else { return Err("four arguments".into()) };
    let (dim, sketch_rows): (usize, usize) = (dim.parse()?, sketch_rows.parse()?);
    let bytes = std::fs::read(file)?;
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    drop(bytes);
    for _ in 0..runs.parse()? {
        let mut sketcher = Sketcher::new(Config::new(dim).sketch_rows(sketch_rows))?;
        let start = Instant::now();
        sketcher.push(Rows::new(&values, dim)?)?;
        println!("{}", start.elapsed().as_secs_f64());
    }
    Ok(())
}
