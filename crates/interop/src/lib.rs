//! Files of other tools, in and out.
