//! The program as its users run it: on one machine, and as a scheduler and three executors in processes of their own.

mod data;
mod faults;
mod local;
mod network;
mod nodes;
mod remote;
mod s3;
