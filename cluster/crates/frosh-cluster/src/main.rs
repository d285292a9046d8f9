//! frosh on many machines: training, encoding and search as jobs of Apache DataFusion and Ballista.

#![deny(unsafe_code)]

mod client;
mod daemons;
mod engine;
mod gate;
mod inputs;
mod output;
mod progress;
mod session;
mod verbs;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use engine::Engine;
use std::process::ExitCode;
use std::time::Duration;
use verbs::{Encode, Search, Sql, Train};

/// Planning recurses into expressions: the default stack of a thread can be too small.
const STACK: usize = 32 << 20;

/// Train, encode and search vectors in Parquet files, on this machine or on a cluster.
#[derive(Parser)]
#[command(
    name = "frosh-cluster",
    version,
    after_help = "Examples:
  on one machine:
    frosh-cluster local train 'vectors/*.parquet' --column embedding --bits 64 -o model.frosh
  on a cluster:
    frosh-cluster scheduler --bind 10.0.0.1:50050
    frosh-cluster executor --scheduler df://10.0.0.1:50050 --host 10.0.0.2       (on each machine)
    frosh-cluster train --scheduler df://10.0.0.1:50050 's3://bucket/vectors/*.parquet' --column embedding -o model.frosh

Exit codes: 0 success, 1 failure, 2 wrong usage."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

/// Options of every verb.
#[derive(Args, Clone)]
struct Common {
    /// Print results as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Print no progress and no report
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run a verb on this machine, without a cluster
    Local(Local),
    Scheduler(daemons::Scheduler),
    Executor(daemons::Executor),
    /// Learn a model from Parquet files on a cluster
    #[command(after_help = verbs::TRAIN_HELP)]
    Train(OnCluster<Train>),
    /// Turn the vectors of Parquet files into codes on a cluster
    #[command(after_help = verbs::ENCODE_HELP)]
    Encode(OnCluster<Encode>),
    /// Find the nearest codes on a cluster
    #[command(after_help = verbs::SEARCH_HELP)]
    Search(OnCluster<Search>),
    /// Run SQL on a cluster
    #[command(after_help = verbs::SQL_HELP)]
    Sql(OnCluster<Sql>),
}

/// A verb on this machine.
#[derive(Args)]
struct Local {
    /// Threads to work on; by default all cores
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    #[command(subcommand)]
    verb: LocalVerb,
}

#[derive(Subcommand)]
enum LocalVerb {
    /// Learn a model from Parquet files
    #[command(after_help = verbs::TRAIN_HELP)]
    Train(Train),
    /// Turn the vectors of Parquet files into codes
    #[command(after_help = verbs::ENCODE_HELP)]
    Encode(Encode),
    /// Find the nearest codes
    #[command(after_help = verbs::SEARCH_HELP)]
    Search(Search),
    /// Run SQL
    #[command(after_help = verbs::SQL_HELP)]
    Sql(Sql),
}

/// A verb on a cluster.
#[derive(Args)]
struct OnCluster<T: Args> {
    /// The scheduler of the cluster
    #[arg(long, value_name = "URL", default_value = "df://127.0.0.1:50050")]
    scheduler: String,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    #[command(flatten)]
    verb: T,
}

impl<T: Args> OnCluster<T> {
    async fn engine(&self) -> Result<Engine> {
        Engine::cluster(&self.scheduler, self.timeout.map(Duration::from_secs)).await
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let daemon = matches!(cli.command, Command::Scheduler(_) | Command::Executor(_));
    // A client prints its own errors. The plans that an executor has run, with their metrics, are its record of who did
    // what.
    let level = if daemon { "info,ballista_executor::metrics=debug" } else { "off" };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).init();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_stack_size(STACK);
    if let Command::Local(Local { threads: Some(threads), .. }) = &cli.command {
        builder.worker_threads(usize::from(*threads));
    }
    // A thread of our own: the stack of the main thread is small.
    let work =
        move || builder.build().map_err(Into::into).and_then(|runtime| runtime.block_on(run(cli)));
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
    let result: Result<()> = match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(anyhow::anyhow!("the program ended in a panic")),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("frosh-cluster: {}", output::explain(&error));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<()> {
    let common = &cli.common;
    match cli.command {
        Command::Scheduler(scheduler) => scheduler.run().await,
        Command::Executor(executor) => executor.run().await,
        Command::Train(job) => job.verb.run(&job.engine().await?, common).await,
        Command::Encode(job) => job.verb.run(&job.engine().await?, common).await,
        Command::Search(job) => job.verb.run(&job.engine().await?, common).await,
        Command::Sql(job) => job.verb.run(&job.engine().await?, common).await,
        Command::Local(local) => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let engine = Engine::Local { threads: local.threads.map_or(cores, usize::from) };
            match local.verb {
                LocalVerb::Train(verb) => verb.run(&engine, common).await,
                LocalVerb::Encode(verb) => verb.run(&engine, common).await,
                LocalVerb::Search(verb) => verb.run(&engine, common).await,
                LocalVerb::Sql(verb) => verb.run(&engine, common).await,
            }
        }
    }
}
