//! The elements of an SVG, written top down.

use std::fmt::Write as _;

/// Width of a character in ems: the widest of the usual sans-serif faces.
const EM: f64 = 0.62;

/// Where a text stands relative to its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Size and look of a text.
#[derive(Clone, Copy)]
pub(super) struct Face(&'static str);

impl Face {
    pub(super) const TITLE: Face = Face("font-size=\"17\" font-weight=\"600\"");
    pub(super) const BOLD: Face = Face("font-size=\"12\" font-weight=\"600\"");
    pub(super) const PLAIN: Face = Face("font-size=\"12\"");
    pub(super) const SMALL: Face = Face("font-size=\"11\" fill=\"#444\"");
    pub(super) const FAINT: Face = Face("font-size=\"12\" fill=\"#444\"");
}

/// Text on a bar.
pub(super) const BAR_TEXT: f64 = 10.0;

pub(super) struct Canvas {
    width: f64,
    y: f64,
    body: String,
}

impl Canvas {
    pub(super) fn new(width: f64) -> Self {
        Canvas {
            width,
            y: 0.0,
            body: String::new(),
        }
    }

    pub(super) fn width(&self) -> f64 {
        self.width
    }

    pub(super) fn move_down(&mut self, by: f64) {
        self.y += by;
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    pub(super) fn text(&mut self, x: f64, text: &str, anchor: Anchor, face: Face) {
        self.text_at(x, 0.0, text, anchor, face);
    }

    /// Text with its base line `dy` below the current height.
    pub(super) fn text_at(&mut self, x: f64, dy: f64, text: &str, anchor: Anchor, face: Face) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.add(format_args!(
            "<text x=\"{}\" y=\"{}\" {}{anchor}>{}</text>",
            px(x),
            px(self.y + dy),
            face.0,
            escaped(text)
        ));
    }

    /// A rectangle with a text that shows when it is pointed at.
    pub(super) fn rect(&mut self, x: f64, dy: f64, w: f64, h: f64, fill: &str, tip: Option<&str>) {
        let shape = format!(
            "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"",
            px(x),
            px(self.y + dy),
            px(w),
            px(h)
        );
        match tip {
            None => self.add(format_args!("<rect {shape}/>")),
            Some(tip) => self.add(format_args!(
                "<rect {shape}><title>{}</title></rect>",
                escaped(tip)
            )),
        }
    }

    /// Many narrow rectangles of one colour in one element.
    pub(super) fn bars(&mut self, bars: &[(f64, f64)], dy: f64, h: f64, fill: &str) {
        let mut path = String::new();
        let (y, h) = (px(self.y + dy), px(h));
        for &(from, to) in bars {
            let w = px(to - from);
            let _ = write!(path, "M{} {y}h{w}v{h}h-{w}z", px(from));
        }
        self.add(format_args!("<path fill=\"{fill}\" d=\"{path}\"/>"));
    }

    pub(super) fn bar_text(&mut self, x: f64, dy: f64, text: &str, ink: &str) {
        self.add(format_args!(
            "<text x=\"{}\" y=\"{}\" font-size=\"{BAR_TEXT}\" fill=\"{ink}\" text-anchor=\"middle\" pointer-events=\"none\">{}</text>",
            px(x),
            px(self.y + dy),
            escaped(text)
        ));
    }

    /// A vertical line.
    pub(super) fn line(&mut self, x: f64, from: f64, to: f64, stroke: &str) {
        self.add(format_args!(
            "<path d=\"M{} {}V{}\" stroke=\"{stroke}\"/>",
            px(x),
            px(self.y + from),
            px(self.y + to)
        ));
    }

    /// The whole document. `step` keeps the ids of several pictures on one page apart.
    pub(super) fn finish(self, step: u32, title: &str, description: &str, wait: bool) -> String {
        let (w, h) = (px(self.width), px(self.y + 12.0));
        let pattern = match wait {
            true => {
                "<defs><pattern id=\"linktax-wait\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
                 patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#fff\"/>\
                 <rect width=\"3\" height=\"6\" fill=\"#e69f00\"/></pattern></defs>\n"
            }
            false => "",
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" role=\"img\" \
             aria-labelledby=\"linktax-step-{step}-title linktax-step-{step}-desc\" \
             font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif\">\n\
             <title id=\"linktax-step-{step}-title\">{}</title>\n<desc id=\"linktax-step-{step}-desc\">{}</desc>\n\
             {pattern}<rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n{}</svg>\n",
            escaped(title),
            escaped(description),
            self.body
        )
    }
}

/// Room that a text takes at most.
pub(super) fn width_of(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * EM
}

/// The text, cut where it would not fit.
pub(super) fn fit(text: &str, space: f64, size: f64) -> String {
    if width_of(text, size) <= space {
        return text.to_owned();
    }
    let keep = (space / (size * EM)).floor() as usize;
    let mut cut: String = text.chars().take(keep.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Hundredths of a pixel are finer than any screen.
fn px(value: f64) -> String {
    let text = format!("{value:.2}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        short => short.to_owned(),
    }
}

/// Text for XML, without the control characters that XML forbids.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// `2592345` as `2,592,345`.
pub(super) fn thousands(n: u64) -> String {
    crate::graphlevel::thousands(n)
}

/// Share with one digit: `31.6 %`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 / whole.max(1) as f64 * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out() {
        assert_eq!(
            escaped("void f<\"a\">(T&&)\u{1b}"),
            "void f&lt;&quot;a&quot;&gt;(T&amp;&amp;)\u{fffd}"
        );
    }

    #[test]
    fn long_text_is_cut_to_its_space() {
        assert_eq!(fit("short", 100.0, 12.0), "short");
        let cut = fit(&"x".repeat(100), 100.0, 12.0);
        assert!(cut.ends_with('…') && width_of(&cut, 12.0) <= 100.0, "{cut}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [px(12.0), px(0.5), px(-0.001), px(7.256)],
            ["12", "0.5", "0", "7.26"]
        );
    }
}
