//! One spelling for a kernel name, whichever demangler wrote it.

/// Casts that a demangler puts before a template argument of a built-in type.
const CASTS: [&str; 12] = [
    "bool",
    "char",
    "signed char",
    "unsigned char",
    "short",
    "unsigned short",
    "int",
    "unsigned int",
    "long",
    "unsigned long",
    "long long",
    "unsigned long long",
];

/// Brings both demangler spellings to one: `(int)128` and `128`, `(bool)0` and `false`, `4096ul` and `4096`,
/// `<unnamed>::` and `(anonymous namespace)::`, `[lambda(int) (instance 1)]` and `{lambda(int)#1}`, `T1 *` and `T1*`,
/// `> >` and `>>`. A leading `void ` goes too. A name that is still mangled stays as it is.
pub(crate) fn normalise(name: &str) -> String {
    let name = name.trim();
    let name = name.strip_prefix("void ").unwrap_or(name);
    if is_mangled(name) {
        return name.to_owned();
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        let after = step(rest, &mut out).unwrap_or_else(|| {
            out.push(next);
            &rest[next.len_utf8()..]
        });
        rest = after;
    }
    out
}

/// Whether a name is a mangled C++ symbol.
pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") && !name.contains(['(', '<', ' '])
}

/// Rewrites what `rest` starts with, if it is one of the spellings that differ; returns what follows.
fn step<'a>(rest: &'a str, out: &mut String) -> Option<&'a str> {
    match rest.as_bytes().first()? {
        b'<' | b'{' => ["<unnamed>", "{anonymous}"].iter().find_map(|spelling| {
            let after = rest.strip_prefix(spelling)?;
            out.push_str("(anonymous namespace)");
            Some(after)
        }),
        b'(' => cast(rest, out),
        b'[' => {
            let after = rest.strip_prefix("[lambda(")?;
            out.push_str("{lambda(");
            Some(after)
        }
        b' ' => space(rest, out),
        b'0'..=b'9' if !out.ends_with(is_identifier) => number(rest, out),
        _ => None,
    }
}

/// `(int)128` -> `128`, `(bool)0` -> `false`.
fn cast<'a>(rest: &'a str, out: &mut String) -> Option<&'a str> {
    let (kind, value) = rest.strip_prefix('(')?.split_once(')')?;
    let digits = value.strip_prefix('-').unwrap_or(value);
    if !CASTS.contains(&kind) || !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if kind != "bool" {
        return Some(value);
    }
    let (word, after) = match value.split_at_checked(1)? {
        ("0", after) => ("false", after),
        ("1", after) => ("true", after),
        _ => return None,
    };
    if after.starts_with(is_identifier) {
        return None;
    }
    out.push_str(word);
    Some(after)
}

/// ` *` -> `*`, `> >` -> `>>`, `operator ()` -> `operator()`, ` (instance 2)]` -> `#2}`.
fn space<'a>(rest: &'a str, out: &mut String) -> Option<&'a str> {
    let after = rest.trim_start_matches(' ');
    if let Some((number, tail)) = after
        .strip_prefix("(instance ")
        .and_then(|tail| tail.split_once(")]"))
        && number.bytes().all(|b| b.is_ascii_digit())
    {
        out.push('#');
        out.push_str(number);
        out.push('}');
        return Some(tail);
    }
    let joins = after.starts_with(['*', '&'])
        || (after.starts_with('>') && out.ends_with('>'))
        || (after.starts_with('(') && out.ends_with("operator"))
        || after.is_empty();
    if !joins {
        out.push(' ');
    }
    Some(after)
}

/// `4096ul` -> `4096`.
fn number<'a>(rest: &'a str, out: &mut String) -> Option<&'a str> {
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (value, tail) = rest.split_at_checked(digits)?;
    let after = tail.trim_start_matches(['u', 'U', 'l', 'L']);
    out.push_str(value);
    if after.starts_with(is_identifier) {
        return Some(tail);
    }
    Some(after)
}

fn is_identifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What patterns are matched on: the name without its parameter list, which says nothing about what a kernel does and
/// names types that mislead (`ncclDevComm*` is a parameter of other kernels too). Of a mangled name, its identifiers.
pub(crate) fn subject(normalised: &str) -> String {
    if is_mangled(normalised) {
        return mangled_identifiers(normalised);
    }
    let name = normalised
        .split_once(" [clone")
        .map_or(normalised, |(name, _)| name);
    let name = name.strip_suffix(" const").unwrap_or(name);
    if !name.ends_with(')') {
        return name.to_owned();
    }
    let mut depth = 0_u32;
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at == 0 { name } else { &name[..at] }.to_owned();
        }
    }
    name.to_owned()
}

/// The length-prefixed identifiers of a mangled name, joined by `::`, so that patterns for demangled names apply.
fn mangled_identifiers(name: &str) -> String {
    let mut found: Vec<&str> = Vec::new();
    let mut rest = &name[2..];
    while let Some(first) = rest.chars().next() {
        if let Some(literal) = integer_literal(rest) {
            rest = literal;
            continue;
        }
        let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let Some((word, after)) = rest[..rest.len() - tail.len()]
            .parse()
            .ok()
            .and_then(|length| tail.split_at_checked(length))
            .filter(|(word, _)| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
        else {
            rest = &rest[first.len_utf8()..];
            continue;
        };
        found.push(if word.starts_with("_GLOBAL__N") {
            "(anonymous namespace)"
        } else {
            word
        });
        rest = after;
    }
    found.join("::")
}

/// What follows a template argument such as `Li128E`, whose digits are no length.
fn integer_literal(rest: &str) -> Option<&str> {
    let value = rest.strip_prefix('L')?;
    let value = value.strip_prefix(|c: char| c.is_ascii_lowercase())?;
    let value = value.strip_prefix('n').unwrap_or(value);
    value
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .strip_prefix('E')
}

/// The name without namespaces, template arguments and parameters, and the namespaces before it.
///
/// A return type in front (`std::enable_if<…>::type vllm::f<…>`) is left out.
pub(crate) fn split_path(subject: &str) -> (&str, &str) {
    let mut depth = 0_u32;
    let mut end = subject.len();
    let mut start = 0;
    let mut leaf = 0;
    let bytes = subject.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => {
                if depth == 0 {
                    end = at;
                }
                depth += 1;
            }
            b'(' | b'{' | b'[' => depth += 1,
            b'>' | b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 => (start, leaf, end) = (at + 1, at + 1, subject.len()),
            b':' if depth == 0 && at > 0 && bytes[at - 1] == b':' => {
                (leaf, end) = (at + 1, subject.len());
            }
            _ => {}
        }
    }
    let end = end.max(leaf);
    let path = subject.get(start..leaf).unwrap_or("");
    (
        path.strip_suffix("::").unwrap_or(path),
        subject.get(leaf..end).unwrap_or(subject),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_demanglers_give_one_spelling() {
        for (nsys, other) in [
            ("void f<(int)128, (bool)0>(T1 *)", "f<128, false>(T1*)"),
            ("g<(unsigned long)4096>()", "g<4096ul>()"),
            ("g<(long)-1, (bool)1>", "g<-1l, true>"),
            (
                "void <unnamed>::h<(unsigned int)8>(T1 *)",
                "(anonymous namespace)::h<8u>(T1*)",
            ),
            (
                "k<a(int &)::[lambda() (instance 3)]::operator ()() const::[lambda(long) (instance 12)]>",
                "k<a(int&)::{lambda()#3}::operator()() const::{lambda(long)#12}>",
            ),
            ("a<b<c>>", "a<b<c> >"),
            (
                "moe<(vllm::moe::ScoringFunc)0>",
                "moe<(vllm::moe::ScoringFunc)0>",
            ),
        ] {
            assert_eq!(normalise(nsys), normalise(other), "{nsys}");
        }
    }

    #[test]
    fn digits_inside_identifiers_and_odd_casts_stay() {
        for name in [
            "bmm_E2m1_E2m1E2m1_Fp32_t128x8x512u2_s6",
            "f<(bool)2>",
            "f<(bool)1x>",
            "f<(T)1>",
            "f<0x1fu>",
            "_ZN7cutlass13device_kernelILi128EEEvv",
        ] {
            assert_eq!(normalise(name), name);
        }
    }

    #[test]
    fn the_subject_has_no_parameters() {
        for (name, head) in [
            ("f<a(int)>(T1*, g(*)(int))", "f<a(int)>"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("f(int) [clone .kd]", "f"),
            ("a::operator()(int) const", "a::operator()"),
            ("(odd)", "(odd)"),
            ("odd)", "odd)"),
            (
                "[CUDA memcpy Host-to-Device]",
                "[CUDA memcpy Host-to-Device]",
            ),
        ] {
            assert_eq!(subject(name), head, "{name}");
        }
    }

    #[test]
    fn mangled_names_are_matched_by_their_identifiers() {
        let name =
            "_ZN7cutlass13device_kernelIN5flash16FlashAttnFwdSm90ILi128ELb0EEEEEvNT_6ParamsE";
        assert_eq!(
            subject(&normalise(name)),
            "cutlass::device_kernel::flash::FlashAttnFwdSm90::Params"
        );
        assert_eq!(subject("_ZN12_GLOBAL__N_11kEv"), "(anonymous namespace)::k");
        assert_eq!(subject("_Z999x"), "");
    }

    #[test]
    fn the_path_is_told_from_the_name() {
        for (name, path, leaf) in [
            ("vllm::moe::topkGating<a::b, 2>", "vllm::moe", "topkGating"),
            ("(anonymous namespace)::f", "(anonymous namespace)", "f"),
            ("_fwd_kernel", "", "_fwd_kernel"),
            (
                "std::enable_if<T2>0, void>::type vllm::g<c10::BFloat16, 8>",
                "vllm",
                "g",
            ),
        ] {
            assert_eq!(split_path(name), (path, leaf), "{name}");
        }
    }

    /// A template argument in the spellings of nsys and of the other demanglers.
    fn argument() -> impl Strategy<Value = (String, String)> {
        prop_oneof![
            any::<bool>().prop_map(|b| (format!("(bool){}", u8::from(b)), b.to_string())),
            any::<u16>().prop_map(|n| (format!("(unsigned int){n}"), format!("{n}u"))),
            any::<u32>().prop_map(|n| (format!("(unsigned long){n}"), format!("{n}ul"))),
            any::<i16>().prop_map(|n| (format!("(int){n}"), n.to_string())),
            "[a-zA-Z_][a-zA-Z0-9_]{0,8}".prop_map(|s| (format!("{s} *"), format!("{s}*"))),
            "[a-z]{1,5}".prop_map(|s| (
                format!("<unnamed>::{s}"),
                format!("(anonymous namespace)::{s}")
            )),
        ]
    }

    proptest! {
        #[test]
        fn spelling_never_matters(arguments in prop::collection::vec(argument(), 1..6), name in "[a-z_]{1,9}") {
            let (nsys, other): (Vec<_>, Vec<_>) = arguments.into_iter().unzip();
            let nsys = format!("void ns::{name}<{}>(T1 *)", nsys.join(", "));
            let other = format!("ns::{name}<{} >(T1*)", other.join(", "));
            prop_assert_eq!(normalise(&nsys), normalise(&other).replace(" >", ">"));
            let other = other.replace(" >", ">");
            prop_assert_eq!(subject(&normalise(&nsys)), subject(&normalise(&other)));
        }

        #[test]
        fn any_text_is_taken(name in "\\PC{0,60}") {
            let subject = subject(&normalise(&name));
            let (path, leaf) = split_path(&subject);
            prop_assert!(path.len() + leaf.len() <= subject.len());
        }

        #[test]
        fn any_name_like_text_is_taken(name in "[_ZNLi0-9a-z<>(){}\\[\\] :*&]{0,60}") {
            let subject = subject(&normalise(&name));
            let (path, leaf) = split_path(&subject);
            prop_assert!(path.len() + leaf.len() <= subject.len());
        }
    }
}
