// The anchors of runs as labelled lines in a panel of BPB.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/history.h"
#include "report/panel.h"

namespace dormouse::report {

struct AnchorLine {
  std::string name;
  double bpb = 0;
  bool best = false;  // the best Kneser-Ney, the one to beat

  bool operator==(const AnchorLine&) const = default;
};

struct AnchorLines {
  std::vector<AnchorLine> drawn;
  std::size_t left_out = 0;  // no room for their labels
};

// Of all runs, the same lines once; where runs differ, with the name of the run that has them. Too many: those to beat only.
AnchorLines anchor_lines(std::span<const History> runs);

// A line across the panel; above its frame: none.
std::string draw_anchor(const Panel& panel, const AnchorLine& line);
// All of them, with labels in the gutter at the right, moved apart where they would overlap.
std::string draw_anchors(const Panel& panel, std::vector<AnchorLine> lines);
// The label of the one to beat, inside: at the right above the line where a run passes it early, else at the left below it. None
// where runs have different ones.
std::string draw_goal_label(const Panel& panel, const std::vector<AnchorLine>& lines, std::span<const History> runs, double HistoryRow::*x);

}  // namespace dormouse::report
