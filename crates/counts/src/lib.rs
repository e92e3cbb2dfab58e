//! What is counted, and what counting bounds.
//!
//! Rooms show what they counted as [`figures`], which only the program turns into a format. [`histogram`] holds durations and
//! [`ranking`] who does something most often, both in a fixed amount of memory. [`admission`] limits how many wait, and
//! [`attempts`] how often what failed is tried again.

#![forbid(unsafe_code)]

pub mod admission;
pub mod attempts;
pub mod figures;
pub mod histogram;
pub mod ranking;
