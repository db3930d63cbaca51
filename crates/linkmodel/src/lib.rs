//! Arithmetic of links: message sizes, alpha-beta fits, Amdahl.
