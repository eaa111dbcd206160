//! Deliberate bugs must be noticed.
