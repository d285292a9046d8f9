//! The `frosh` program. Each verb is a file in `verbs/`; this one parses, runs, and turns errors into one
//! line and an exit code: 0 done, 1 failed, 2 wrong usage, 3 a refresh is due (`drift`), 130 interrupted.

mod args;
mod checkpoint;
mod choice;
mod eval_set;
mod hints;
mod kinds;
mod labels;
mod learn;
mod output;
mod pieces;
mod progress;
mod query_args;
mod signals;
mod skipping;
mod verbs;

use clap::FromArgMatches as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = args::command().get_matches();
    let cli = match args::Cli::from_arg_matches(&arguments) {
        Ok(cli) => cli,
        Err(error) => error.format(&mut args::command()).exit(),
    };
    signals::watch();
    let done = frosh::Pool::new(cli.common.threads)
        .map_err(anyhow::Error::from)
        .and_then(|pool| pool.install(|| verbs::run(&cli)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(interrupted) = error.downcast_ref::<signals::Interrupted>() {
                output::complain(&interrupted.to_string());
                return ExitCode::from(130);
            }
            if error.is::<verbs::drift::RefreshDue>() {
                return ExitCode::from(3);
            }
            // Whoever reads our output may stop (`| head`): an end, but not a success.
            if !output::is_broken_pipe(&error) {
                let mut line = format!("error: {}", output::chain(&error));
                if let Some(advice) = hints::Flags::of_verb(&arguments).advice(&error) {
                    line += &format!("; {advice}");
                }
                output::complain(&line);
            }
            ExitCode::FAILURE
        }
    }
}
