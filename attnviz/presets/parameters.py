"""How many weights each published model has, counted from the shapes that its published configuration fixes."""

from collections.abc import Mapping
from types import MappingProxyType

# Every matrix, norm and bias of the language model, an embedding that is also the output layer once, a vocabulary as
# it is padded in the published weights, and no vision tower. Of a model with experts all of them: they lie in memory.
PARAMETERS: Mapping[str, int] = MappingProxyType(
    {
        "gpt-2-small": 124_439_808,
        "gpt-2-xl": 1_557_611_200,
        "falcon-7b": 6_921_720_704,
        "falcon-40b": 41_303_293_952,
        "falcon-180b": 178_557_088_768,
        "llama-2-7b": 6_738_415_616,
        "llama-2-13b": 13_015_864_320,
        "llama-2-70b": 68_976_648_192,
        "llama-3-8b": 8_030_261_248,
        "llama-3-1-8b": 8_030_261_248,
        "llama-3-1-70b": 70_553_706_496,
        "llama-3-1-405b": 405_853_388_800,
        "llama-3-2-1b": 1_235_814_400,
        "llama-3-2-3b": 3_212_749_824,
        "mistral-7b-v0-1": 7_241_732_096,
        "mistral-7b-v0-3": 7_248_023_552,
        "mixtral-8x7b": 46_702_792_704,
        "mixtral-8x22b": 140_630_071_296,
        "qwen2-5-0-5b": 494_032_768,
        "qwen2-5-7b": 7_615_616_512,
        "qwen2-5-72b": 72_706_203_648,
        "qwen3-0-6b": 596_049_920,
        "qwen3-8b": 8_190_735_360,
        "qwen3-32b": 32_762_123_264,
        "qwen3-30b-a3b": 30_532_122_624,
        "qwen3-235b-a22b": 235_093_634_560,
        "qwen3-next-80b-a3b": 79_674_391_296,
        "gemma-2-2b": 2_614_341_888,
        "gemma-2-9b": 9_241_705_984,
        "gemma-2-27b": 27_227_128_320,
        "gemma-3-1b": 999_885_952,
        "gemma-3-4b": 3_880_099_328,
        "gemma-3-12b": 11_765_788_416,
        "gemma-3-27b": 27_009_002_240,
        "gpt-oss-20b": 20_914_757_184,
        "gpt-oss-120b": 116_829_156_672,
        "deepseek-v2-236b": 235_741_434_880,
        "deepseek-v3-r1-671b": 671_026_404_352,
        "deepseek-v3-1": 671_026_404_352,
        "phi-3-mini-4k": 3_821_079_552,
    }
)
