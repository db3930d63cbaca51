//! The lean build says what it lacks.

use crate::rig::Rig;

#[test]
fn the_lean_build_names_the_feature() {
    for words in [
        &["trace", "split", "x.sqlite", "--json"][..],
        &["trace", "doctor", "x.sqlite"],
    ] {
        Rig::bare()
            .run(words)
            .refused(&["lean build", "feature `trace`"]);
    }
}
