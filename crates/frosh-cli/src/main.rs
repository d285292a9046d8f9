//! The `frosh` program. Each verb is a file in `verbs/`; this one parses, runs, and turns errors into one
//! line and an exit code: 0 done, 1 failed, 2 wrong usage.

mod args;
mod checkpoint;
mod eval_set;
mod labels;
mod learn;
mod output;
mod progress;
mod query_args;
mod signals;
mod verbs;

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    signals::watch();
    let done = frosh::Pool::new(cli.common.threads)
        .map_err(anyhow::Error::from)
        .and_then(|pool| pool.install(|| verbs::run(&cli)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever reads our output may stop (`| head`): an end, but not a success.
            if !output::is_broken_pipe(&error) {
                output::complain(&format!("error: {}", output::chain(&error)));
            }
            ExitCode::FAILURE
        }
    }
}
