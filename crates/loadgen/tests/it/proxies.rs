use std::process::Command;

use linktax_loadgen::Secrets;

use crate::harness::{closed, plan, quick, refusal, run, spawn};

/// Variables that HTTP clients take a proxy from.
const VARIABLES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

#[test]
fn proxies_of_the_environment_are_never_used() {
    // Nobody listens there any more: whoever asked this proxy would fail.
    let dead = spawn(quick()).base_url();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--ignored", "proxies::behind_a_dead_proxy"]);
    for variable in VARIABLES {
        child.env(variable, &dead);
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy");
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "proxies_of_the_environment_are_never_used runs it, with a proxy in its environment"]
fn behind_a_dead_proxy() {
    let server = spawn(quick());
    run(plan(server.base_url(), closed(1, 2))).assert_all_completed(2);
    // Nor is a refused connection blamed on, or sent to, a proxy.
    let gone = spawn(quick()).base_url();
    let message = refusal(plan(gone.as_str(), closed(1, 1)), &Secrets::default());
    assert!(message.contains(&gone), "{message}");
}
