// Runs over each other in one self-contained picture: held-out and training BPB with the anchors, loss, learning rate,
// gradient norm, speed; BPB over bytes and over time as well. No script, nothing fetched, light and dark.
#pragma once

#include <span>
#include <string>

#include "report/history.h"

namespace dormouse::report {

// A whole SVG document. 1 to kMostRuns runs; at most ~1,000 dots and 500 line points a curve, however long the runs.
std::string plot_svg(std::span<const History> runs);
// The same inside an HTML page.
std::string plot_html(std::span<const History> runs);

}  // namespace dormouse::report
