//! The eigenproblem inside the shrink of frequent directions: a solver of our own, since this is where
//! most of a shrink's time goes. See [`solver`] for what it is, how it works and what it costs.

mod householder;
mod solver;
mod tridiagonal;

pub(crate) use solver::Eigen;
