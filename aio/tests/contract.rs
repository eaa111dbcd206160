//! What every ring promises, on all of them; and what only the simulated disk does.

mod contract {
    pub mod subject;

    mod errors;
    mod flow;
    mod names;
    mod sim_crash;
    mod sim_faults;
    mod sim_order;
    mod soak;
}
