// The model config and its presets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "config/field.h"

namespace dormouse::network {

// Rises when an unchanged config would compute something else.
inline constexpr std::int64_t kEquations = 1;

struct ModelConfig {
  std::int64_t equations = kEquations;
  std::int64_t d_model = 768;
  std::int64_t n_heads = 12;
  std::int64_t head_dim = 64;
  std::int64_t d_ffn = 2048;
  std::int64_t rank = 64;
  std::int64_t n_experts = 3;
  std::string expert_init = "unit";
  std::int64_t max_iter = 4;
  std::int64_t max_seq_len = 512;
  double norm_eps = 1e-3;
  bool use_kda = true;
  std::string kda_decay_init = "spread";
  bool use_engram = true;
  std::int64_t engram_rows = 32768;  // rounded up to a power of two by validate
  std::vector<std::int64_t> engram_orders = {2, 3, 4};
  std::int64_t engram_dim = 32;
  double engram_lam_max = 0.5;
  std::string engram_gate = "clip";  // clip: min(sigma, lam_max); smooth: lam_max * sigma
  double fin_weight = 1.0;

  bool operator==(const ModelConfig&) const = default;
};

template <class Config, class Visit>
void for_each_field(Config& c, Visit&& visit) requires std::is_same_v<std::remove_const_t<Config>, ModelConfig> {
  using config::Field;
  visit(Field{.name = "equations", .doc = "version of the mathematics", .min = 1, .max = 1e6}, c.equations);
  visit(Field{.name = "d_model", .doc = "width of the residual stream", .min = 1, .max = 65536}, c.d_model);
  visit(Field{.name = "n_heads", .doc = "KDA heads; divides d_model", .min = 1, .max = 4096}, c.n_heads);
  visit(Field{.name = "head_dim", .doc = "width of a KDA head", .min = 1, .max = 1024}, c.head_dim);
  visit(Field{.name = "d_ffn", .doc = "hidden width of an expert", .min = 1, .max = 1048576}, c.d_ffn);
  visit(Field{.name = "rank", .doc = "rank of the spectral factors", .min = 1, .max = 65536}, c.rank);
  visit(Field{.name = "n_experts", .doc = "experts blended by the controller", .min = 1, .max = 4096}, c.n_experts);
  visit(Field{.name = "expert_init",
              .doc = "initial scales of the experts: 1, sqrt(out/rank), or that and 0 where they write",
              .choices = "one|unit|silent",
              .before = "one"},
        c.expert_init);
  visit(Field{.name = "max_iter", .doc = "loop iterations T: the depth", .min = 1, .max = 256}, c.max_iter);
  visit(Field{.name = "max_seq_len", .doc = "longest training row in bytes", .min = 1, .max = 1048576}, c.max_seq_len);
  visit(Field{.name = "norm_eps", .doc = "epsilon of the RMS norms", .min = 1e-12, .max = 1}, c.norm_eps);
  visit(Field{.name = "use_kda", .doc = "gated delta attention"}, c.use_kda);
  visit(Field{.name = "kda_decay_init", .doc = "initial time constants of the KDA channels", .choices = "spread|short"}, c.kda_decay_init);
  visit(Field{.name = "use_engram", .doc = "hashed n-gram memory"}, c.use_engram);
  visit(Field{.name = "engram_rows", .doc = "rows per n-gram order, rounded up to a power of two", .min = 1, .max = 1 << 30},
        c.engram_rows);
  visit(Field{.name = "engram_orders", .doc = "bytes per n-gram, three orders", .min = 1, .max = 32}, c.engram_orders);
  visit(Field{.name = "engram_dim", .doc = "width of a memory row", .min = 1, .max = 4096}, c.engram_dim);
  visit(Field{.name = "engram_lam_max", .doc = "largest share of the memory in the mix", .min = 1e-6, .max = 1}, c.engram_lam_max);
  visit(Field{.name = "engram_gate", .doc = "memory gate: min(sigma, lam_max) or lam_max * sigma", .choices = "clip|smooth"},
        c.engram_gate);
  visit(Field{.name = "fin_weight", .doc = "weight of the final readout's loss", .min = 0, .max = 100}, c.fin_weight);
}

// tiny, nano, small, base. Unknown: base::UsageError listing them, nearest named.
ModelConfig preset(std::string_view name);
std::vector<std::string_view> preset_names();

// Rounds engram_rows, checks combinations (n_heads | d_model, three orders, equations known); base::Error naming key and way out.
void validate(ModelConfig& config);

}  // namespace dormouse::network
