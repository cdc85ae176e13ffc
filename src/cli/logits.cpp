#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "evaluate/bpb.h"
#include "network/dormouse/model_file.h"
#include "train/signals.h"

namespace dormouse::cli {
namespace {

struct Flags {
  std::string model, file, out, bytes, depth;
  Machine machine;
};

// NumPy format 1.0: magic, version, header length, header padded to a multiple of 64 (numpy.lib.format).
void write_npy(const std::string& path, const tensor::Tensor& x) {
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", x.dim(0), x.dim(1));
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(header.size() & 0xFF);
  head += static_cast<char>(header.size() >> 8);
  head += header;
  base::write_file_atomically(path, [&](base::File& file) {
    file.write(base::bytes_of(head));
    file.write({reinterpret_cast<const std::uint8_t*>(x.bytes()), static_cast<std::size_t>(x.size()) * sizeof(float)});
  });
}

int run(const Flags& flags) {
  train::watch_signals();
  flags.machine.apply();
  auto model = network::load_model(flags.model);
  const std::int64_t count = flags.bytes.empty() ? model.config.max_seq_len : base::parse_count(flags.bytes, "--bytes", 1);
  const auto bytes = base::read_start(flags.file, static_cast<std::uint64_t>(count));
  if (bytes.empty()) throw base::Error(base::escape(flags.file) + " is empty; logits need at least one byte");
  evaluate::BpbOptions options;
  options.compute = flags.machine.compute_type();
  options.depth = flags.depth.empty() ? 0 : base::parse_count(flags.depth, "--depth", 1);
  const auto logits = evaluate::row_logits(model.config, model.parameters, bytes, options);
  write_npy(flags.out, logits);
  const std::string line = fmt::format("{}: float32 [{},256], logits[p] predicts byte p+1", base::escape(flags.out), logits.dim(0));
  if (flags.machine.json) {
    print(fmt::format("{{\"bytes\":{},\"classes\":256}}\n", logits.dim(0)));
  } else {
    base::log_line(line);
  }
  return 0;
}

}  // namespace

void add_logits(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  Command command(app, "logits", "write the logits of a text as a NumPy array");
  command.required("model,-m,--model", flags->model, "run directory, checkpoint or export", "MODEL");
  command.required("file", flags->file, "text to read, as one row", "FILE");
  command.required("-o,--out", flags->out, "where to write", "X.npy");
  command.optional("--bytes", flags->bytes, "read at most N bytes (default: the model's longest row)", "N");
  command.optional("--depth", flags->depth, "loop iterations (default: all)", "N");
  flags->machine.add(command);
  command.footer("Example:\n  dormouse logits runs/a text.txt --out logits.npy     # numpy.load(...): float32 [bytes, 256]");
  command.action(context, [flags] { return run(*flags); });
}

}  // namespace dormouse::cli
