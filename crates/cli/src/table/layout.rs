//! A table of cells, laid out for the width there is.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Columns with a name each, one row a cell.
pub(crate) struct Grid {
    pub(crate) headers: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Grid {
    /// As it is if it fits, or if there is no limit (a file, a pipe). Else turned: one line a number, one column a
    /// cell, in as many blocks as it takes, so that no line wraps.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let wide = self.wide();
        match width {
            Some(width) if line_width(&wide) > width => self.tall(width),
            _ => wide,
        }
    }

    /// Leaves out columns in which no cell has a value.
    pub(crate) fn without_empty_columns(mut self) -> Grid {
        for at in (0..self.headers.len()).rev() {
            if self.rows.iter().all(|row| row[at] == "n/a") {
                self.headers.remove(at);
                for row in &mut self.rows {
                    row.remove(at);
                }
            }
        }
        self
    }

    fn wide(&self) -> String {
        let mut table = new_table();
        table.set_header(self.headers.iter().copied());
        for row in &self.rows {
            table.add_row(row);
        }
        finish(table, 0)
    }

    fn tall(&self, width: usize) -> String {
        let padded = |text: usize| text + 3;
        let names = self.headers.iter().map(|h| h.len()).max().unwrap_or(0);
        let cell_width = |row: &Vec<String>| row.iter().map(String::len).max().unwrap_or(0).max(4);
        let mut blocks = Vec::new();
        let mut block: Vec<usize> = Vec::new();
        let mut used = 1 + padded(names);
        for (n, row) in self.rows.iter().enumerate() {
            let more = padded(cell_width(row));
            if !block.is_empty() && used + more > width {
                blocks.push(self.block(&std::mem::take(&mut block)));
                used = 1 + padded(names);
            }
            block.push(n);
            used += more;
        }
        blocks.push(self.block(&block));
        blocks.join("\n\n")
    }

    fn block(&self, cells: &[usize]) -> String {
        let mut table = new_table();
        let title = |n: &usize| format!("#{}", n + 1);
        table.set_header(std::iter::once("cell".to_owned()).chain(cells.iter().map(title)));
        for (at, header) in self.headers.iter().enumerate() {
            let values = cells.iter().map(|&n| self.rows[n][at].clone());
            table.add_row(std::iter::once((*header).to_owned()).chain(values));
        }
        finish(table, 1)
    }
}

/// Breaks the lines of a text between words; without a limit it stays as it is.
pub(crate) fn wrap(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let mut used = 0;
        for word in line.split_inclusive(' ') {
            let length = word.trim_end().chars().count();
            if used > 0 && used + length > width {
                out.truncate(out.trim_end_matches(' ').len());
                out.push_str("\n  ");
                used = 2;
            }
            out.push_str(word);
            used += word.chars().count();
        }
    }
    out
}

fn new_table() -> Table {
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Numbers to the right, the first `names` columns to the left.
fn finish(mut table: Table, names: usize) -> String {
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn line_width(table: &str) -> usize {
    table.lines().map(|l| l.chars().count()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid {
            headers: vec!["in", "TTFT p50", "verdict"],
            rows: (0..4)
                .map(|n| {
                    vec![
                        format!("{}", 1024 * n),
                        "12345.6".to_owned(),
                        "valid".to_owned(),
                    ]
                })
                .collect(),
        }
    }

    #[test]
    fn what_fits_is_left_as_it_is() {
        let wide = grid().render(None);
        assert!(
            wide.starts_with("|   in | TTFT p50 | verdict |\n|------"),
            "{wide}"
        );
        assert_eq!(grid().render(Some(line_width(&wide))), wide);
    }

    #[test]
    fn what_does_not_fit_is_turned_and_broken_into_blocks() {
        let tall = grid().render(Some(26));
        assert!(line_width(&tall) <= 26, "{tall}");
        assert_eq!(tall.matches("| TTFT p50 |").count(), 4, "{tall}");
        for n in 1..=4 {
            assert!(tall.contains(&format!("#{n} |")), "{tall}");
        }
    }

    #[test]
    fn columns_without_any_value_are_left_out() {
        let mut grid = grid();
        for row in &mut grid.rows {
            row[1] = "n/a".to_owned();
        }
        grid.rows[0][2] = "n/a".to_owned();
        assert_eq!(grid.without_empty_columns().headers, ["in", "verdict"]);
    }

    #[test]
    fn text_breaks_between_words_and_keeps_its_lines() {
        let text = "one two three\n- four\n";
        assert_eq!(wrap(text, None), text);
        assert_eq!(wrap(text, Some(80)), text);
        assert_eq!(wrap(text, Some(8)), "one two\n  three\n- four\n");
        assert_eq!(wrap("abcdefghij k", Some(4)), "abcdefghij\n  k");
    }

    #[test]
    fn a_width_that_nothing_fits_still_shows_every_cell() {
        let tall = grid().render(Some(5));
        assert_eq!(tall.matches("valid").count(), 4, "{tall}");
    }
}
